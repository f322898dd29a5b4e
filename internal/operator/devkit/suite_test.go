//go:build cgo

package devkit

import (
	"path/filepath"
	"slices"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
)

// passes runs the suite. It fails on each finding of a kind that isn't permitted.
func passes(t *testing.T, r, reference *Runner, permitted ...Kind) {
	t.Helper()
	report, err := r.Test(t.Context(), Batches(1), reference)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if !slices.Contains(permitted, f.Kind) {
			t.Error(f)
		}
	}
	if report.Done == 0 || report.Records < 8192 || len(report.Untested) > 0 {
		t.Errorf("%d records, of which %d have a result; untested: %v", report.Records, report.Done, report.Untested)
	}
}

// TestBuiltInOperatorsConform: the suite passes on the host device, and on the simulated device with the same bytes.
func TestBuiltInOperatorsConform(t *testing.T) {
	descriptions := map[string]*compiled.Description{}
	for _, d := range compiled.BuiltIn() {
		descriptions[d.Name] = d
	}
	for _, spec := range []string{"crc32c", "minhash?k=5&hashes=4", "quality"} {
		t.Run(spec, func(t *testing.T) {
			op, err := operator.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			o := bind(t, descriptions[op.Name()], spec)
			cpu := runner(t, Subject{Device: onHost(t, operator.HostKernels()...), Operator: o})
			passes(t, cpu, nil)
			passes(t, runner(t, Subject{Device: onSim(t, operator.HostKernels()...), Operator: o, Brief: true}), cpu)
		})
	}
}

// ownSources returns the sources of the repository's valid operators, relative to its root.
func ownSources(t *testing.T) (sources []string) {
	t.Helper()
	for _, pattern := range []string{"examples/operators/*/*.cu", "kernels/test/operators/*.cu"} {
		found, err := filepath.Glob(root + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range found {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, relative)
		}
	}
	return sources
}

// permitted returns the permitted findings of an operator. careless.cu and stray.cu access bytes outside some records
// on purpose.
func permitted(source string) []Kind {
	switch filepath.Base(source) {
	case "careless.cu", "stray.cu":
		return []Kind{OutOfBounds}
	}
	return nil
}

// withMegabytes lists an operator of each form, one with byte strings, and one with passes. For other operators, the suite is brief: it
// tests fewer single records, and omits records of a megabyte. The division of such records among threads depends only on the form.
var withMegabytes = []string{"entropy.cu", "redact.cu", "simhash.cu", "blake3.cu", "tally.cu"}

// TestOperatorsOfOnesOwnConform: the suite passes on the host device, and on the simulated device with the same bytes.
func TestOperatorsOfOnesOwnConform(t *testing.T) {
	sources := ownSources(t)
	if raceEnabled { // the detector covers the caller of an operator, not its code
		sources = []string{"examples/operators/entropy/entropy.cu", "kernels/test/operators/tally.cu"}
	}
	for _, source := range sources {
		t.Run(filepath.Base(source), func(t *testing.T) {
			l := library(t, source)
			o := bindAny(t, l.Description())
			cpu := runner(t, Subject{Device: onHost(t, l), Operator: o, Brief: !slices.Contains(withMegabytes, filepath.Base(source))})
			passes(t, cpu, nil, permitted(source)...)
			passes(t, runner(t, Subject{Device: onSim(t, l), Operator: o, Brief: true, Apart: true}), cpu, permitted(source)...)
		})
	}
}

func TestRateIsThatOfTheKernel(t *testing.T) {
	l := library(t, "examples/operators/entropy/entropy.cu")
	r := runner(t, Subject{Device: onHost(t, l), Operator: bind(t, l.Description(), "")})
	for _, bytes := range []int{256, 64 << 10} {
		if rate, err := r.Rate(t.Context(), bytes); err != nil || rate < 1e6 || rate > 1e12 {
			t.Errorf("%d bytes: %v bytes per second, %v", bytes, rate, err)
		}
	}
}
