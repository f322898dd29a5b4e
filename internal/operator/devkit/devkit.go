// Package devkit is for authors of operators (docs/adr/0040-operators-of-your-own.md). It creates a new operator's source, runs
// operators over adversarial batches and samples, checks the rules for operators on every device, and reports violations.
//
// The command `worker operator` uses the package. Tests run the suite on every operator, including the built-in ones, so the suite uses
// an operator only through the interfaces of package device. It reports findings instead of failing a test. Start reading with
// Trial.Run, then Runner.Test. memory.go describes the memory around a batch.
package devkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/userops"
)

// GPU is the GPU that a trial uses, and a compiler for it.
type GPU interface {
	userops.GPUs

	// Open opens the GPU. It returns an error if there is no usable GPU.
	Open() (device.Device, error)

	// Compiler returns the version of the compiler, or an error if there is no compiler. A machine without a GPU may have a compiler.
	Compiler() (version string, err error)
}

// Trial tests an operator on the CPU and on a GPU, and compares the results. A missing device or compiler isn't an error, but the
// report names it.
type Trial struct {
	File    string // a source, or a compiled file, which is used with the compiled file for the other device in the same folder
	Query   string // parameters, such as "bits=5&seed=1"
	Samples []Sample

	// Device selects the tested devices. "auto" tests the CPU, and a GPU if there is one. "cuda" tests a GPU and compares its
	// results with the CPU's. "host" tests the CPU.
	Device string

	GPU   GPU
	Out   io.Writer // destination of the report
	Brief bool      // see Subject.Brief; it also omits the throughput
	Apart bool      // see Subject.Apart

	// Before is called before the code runs on a device. If the code ends this process, another process can report the finding in crash.
	Before func(device string, crash Finding)
}

// BadUsage is the error for a file that isn't an operator, or for parameters that the operator doesn't accept.
type BadUsage struct{ error }

// errNotAsked is the reason why --device cuda doesn't test the CPU. The CPU's results are only a reference for the GPU's.
var errNotAsked = errors.New("only results of the GPU were asked for")

// Run opens the operator on each device, tests it on the CPU first, and writes the report. It returns an error if a check failed, or if
// nothing was tested.
func (t *Trial) Run(ctx context.Context) (err error) {
	source, cpu, err := t.openCPU(ctx)
	if err != nil {
		return err
	}
	gpu := &side{device: "GPU", missing: errors.New("--device host was given")}
	defer func() {
		for _, s := range []*side{cpu, gpu} {
			if s.close != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	if t.Device != "host" {
		if err := t.openGPU(source, gpu); err != nil {
			return err
		}
	}
	switch {
	case t.Device == "cuda" && gpu.missing != nil:
		return fmt.Errorf("--device cuda: %w", gpu.missing)
	case cpu.missing != nil && gpu.missing != nil:
		return fmt.Errorf("nothing can run %s:\nCPU: %w\nGPU: %w", t.File, cpu.missing, gpu.missing)
	}
	reference := (*side)(nil)
	for _, s := range []*side{cpu, gpu} {
		if s.missing != nil {
			continue
		}
		if s == cpu && t.Device == "cuda" {
			s.missing = errNotAsked
		} else if err := t.test(ctx, s, reference); err != nil {
			return fmt.Errorf("%s: %w", s.device, err)
		} else if s.report.Stopped {
			s.close = nil // the resources of a device that failed or still computes are freed when the process ends
			continue
		}
		reference = s
	}
	o := t.operator(cpu, gpu)
	if n := printReport(t.Out, o, t.Samples, cpu, gpu); n > 0 {
		return fmt.Errorf("%s: %d checks failed", o, n)
	}
	return nil
}

// RunSingly computes each record alone on the CPU, to find a record that makes the code end the process.
func (t *Trial) RunSingly(ctx context.Context) error {
	_, cpu, err := t.openCPU(ctx)
	if err == nil && cpu.missing == nil {
		err = errors.Join(cpu.runner.RunSingly(ctx, t.batches()), cpu.close())
	}
	return err
}

func (t *Trial) operator(sides ...*side) *compiled.Operator {
	for _, s := range sides {
		if s.runner != nil {
			return s.runner.subject.Operator
		}
	}
	return nil
}

// openCPU finds the operator's files and opens the operator on the host device. It compiles a source for the CPU.
func (t *Trial) openCPU(ctx context.Context) (*userops.Source, *side, error) {
	s := &side{device: "CPU"}
	paths, err := filesOf(t.File)
	if err != nil {
		return nil, nil, err
	}
	stem, suffix := compiled.CutSuffix(t.File)
	switch suffix {
	case compiled.HostSuffix:
		s.missing = fmt.Errorf("%s has host code that launches kernels, so only GPUs run it", t.File)
	case compiled.SourceSuffix:
		folder, err := os.MkdirTemp("", "millrace-operator-")
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		library := filepath.Join(folder, filepath.Base(stem)+compiled.CPUSuffix)
		if _, err = cpulib.Compile(ctx, t.File, library); err == nil {
			paths = append(paths, library)
		} else if s.missing = err; !errors.Is(err, cpulib.ErrNoCompiler) {
			return nil, nil, err
		}
		s.with = "compiled with the machine's C++ compiler"
	}
	source, err := userops.Open(t.GPU, paths...)
	if err != nil || s.missing != nil {
		return source, s, err
	}
	library := source.Path(compiled.CPUSuffix)
	if library == "" {
		s.missing = fmt.Errorf("there is no %s beside %s", filepath.Base(stem)+compiled.CPUSuffix, t.File)
		return source, s, nil
	}
	if s.with == "" {
		s.with = "the library " + library
	}
	kernel, err := source.Library()
	if err != nil {
		return nil, nil, err
	}
	d, err := host.Open(host.Options{Kernels: []device.HostKernel{kernel}})
	if err != nil {
		return nil, nil, err
	}
	return source, s, t.begin(s, d, source)
}

// filesOf returns the files of an operator, given one of its files.
func filesOf(named string) ([]string, error) {
	if _, err := os.Stat(named); err != nil {
		return nil, err
	}
	stem, suffix := compiled.CutSuffix(named)
	var others []string // suffixes of files for the other device; the first existing file is used
	switch suffix {
	case compiled.SourceSuffix, compiled.HostSuffix:
	case compiled.CPUSuffix:
		others = compiled.GPUSuffixes
	case "":
		return nil, BadUsage{fmt.Errorf("%s: the file of an operator has a name that ends with %s", named, strings.Join(compiled.Suffixes, ", "))}
	default:
		others = []string{compiled.CPUSuffix}
	}
	for _, other := range others {
		if _, err := os.Stat(stem + other); err == nil {
			return []string{named, stem + other}, nil
		}
	}
	return []string{named}, nil
}

// openGPU opens the operator on the GPU. Without a GPU, it still compiles a source, to find errors.
func (t *Trial) openGPU(source *userops.Source, s *side) error {
	stem, suffix := compiled.CutSuffix(t.File)
	for _, one := range append(compiled.GPUSuffixes, compiled.HostSuffix) {
		if path := source.Path(one); path != "" {
			s.with = path
		}
	}
	if suffix != compiled.SourceSuffix && s.with == "" {
		s.missing = fmt.Errorf("there is no %s beside %s", filepath.Base(stem)+compiled.CubinSuffix, t.File)
		return nil
	}
	d, missing := t.GPU.Open()
	if suffix == compiled.SourceSuffix {
		version, err := t.GPU.Compiler()
		switch {
		case err != nil && missing == nil:
			missing = errors.Join(err, d.Close())
		case err == nil && missing != nil:
			const compute = "9.0"
			if _, err := source.Compile(compute); err != nil {
				return err
			}
			missing = fmt.Errorf("%w; NVRTC %s compiles it for GPUs of compute capability %s", missing, version, compute)
		}
		s.with = "compiled with NVRTC " + version
	}
	if s.missing = missing; missing != nil {
		return nil
	}
	if _, err := source.Load(d); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", t.File, err), d.Close())
	}
	return t.begin(s, d, source)
}

// begin opens the Runner of a side on its device.
func (t *Trial) begin(s *side, d device.Device, source *userops.Source) error {
	s.with = d.Info().Name + ", " + s.with
	s.close = func() error {
		var errs []error
		if s.runner != nil {
			errs = append(errs, s.runner.Close())
		}
		var leak *device.LeakError // it reports the loaded operator, which the device unloads
		if err := d.Close(); !errors.As(err, &leak) {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	description, err := source.Describe()
	if err == nil {
		var o *compiled.Operator
		if o, err = description.Bind(t.Query); err != nil {
			err = BadUsage{err}
		} else {
			s.runner, err = Open(Subject{Device: d, Operator: o, Apart: t.Apart, Brief: t.Brief,
				Before: func(batch string, record int, data []byte) {
					if t.Before != nil {
						t.Before(s.device, Finding{Kind: Crashed, Batch: batch, Record: record, Data: data,
							Text: "the code crashed: look for a pointer outside the record or the result, or for a recursion that doesn't end"})
					}
				},
				Waiting: func(batch string, patience time.Duration) {
					_, _ = fmt.Fprintf(t.Out, "the %s still computes batch %q: waiting for up to %v; if that is unexpected, look for a loop that doesn't end\n",
						s.device, batch, patience)
				}})
		}
	}
	if err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

// batches returns the batches of the suite, and the samples.
func (t *Trial) batches() []corpus.Set {
	batches := Batches(1)
	if len(t.Samples) > 0 {
		batches = append(batches, corpus.Set{Name: samplesBatch, Payloads: records(t.Samples)})
	}
	return batches
}

// test runs the suite, the samples and the measurements on one side. It compares the results with reference, which may be nil.
func (t *Trial) test(ctx context.Context, s, reference *side) (err error) {
	var other *Runner
	if reference != nil {
		other, s.against = reference.runner, reference.device
	}
	if s.report, err = s.runner.Test(ctx, t.batches(), other); err != nil || s.report.Stopped {
		return err
	}
	if len(t.Samples) > 0 {
		var found *Finding // the suite has already reported this finding
		if s.answers, err = s.runner.Compute(ctx, samplesBatch, records(t.Samples)); err != nil {
			if errors.As(err, &found) {
				return nil
			}
			return err
		}
		s.report.Findings = append(s.report.Findings, checkSamples(t.Samples, s.answers)...)
	}
	if t.Brief || len(s.report.Findings) > 0 {
		return nil
	}
	for _, bytes := range rateBytes {
		rate, err := s.runner.Rate(ctx, bytes)
		if err != nil {
			return err
		}
		s.rates = append(s.rates, rate)
	}
	return nil
}
