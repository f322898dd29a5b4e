package devkit

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"millrace/internal/operator/compiled"
)

// rateBytes are the sizes of records in measurements of the throughput.
var rateBytes = []int{256, 2 << 10, 64 << 10}

// side is an operator on one device of a trial, with the trial's results on that device.
type side struct {
	device  string // "CPU" or "GPU"
	with    string // name of the device, and the operator's compiler or file
	missing error  // reason why the operator wasn't tested on this device, or nil; if it isn't nil, the side has no results
	runner  *Runner
	report  *Report // report of the suite, including the samples
	answers []Answer
	against string    // device that the results were compared with; may be empty
	rates   []float64 // bytes per second, one for each of rateBytes; empty if not measured
	close   func() error
}

// printer writes a report. Cells of a line are separated by tabs.
type printer struct{ w *tabwriter.Writer }

func (p *printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format+"\n", args...) }

// printReport writes the results of a trial, and returns the number of findings.
func printReport(w io.Writer, o *compiled.Operator, samples []Sample, sides ...*side) (findings int) {
	p := &printer{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	d := o.Description()
	p.line("%s: version %d, %v", o, d.Version, d.Form)
	var tested []*side
	for _, s := range sides {
		if s.missing != nil {
			p.line("%s: not tested: %v", s.device, s.missing)
			continue
		}
		p.line("%s: %s", s.device, s.with)
		tested = append(tested, s)
	}
	p.samples(samples, tested)
	for _, s := range tested {
		p.findings(s)
		findings += len(s.report.Findings)
	}
	p.rates(tested)
	p.line("")
	for _, s := range tested {
		for _, text := range s.report.Untested {
			p.line("not tested on the %s: %s", s.device, text)
		}
		verdict := "every check passed"
		if n := len(s.report.Findings); n > 0 {
			verdict = fmt.Sprintf("%d checks failed", n)
		}
		p.line("%s: %d records in adversarial batches, of which %d have a result; %s", s.device, s.report.Records, s.report.Done, verdict)
	}
	if last := tested[len(tested)-1]; findings == 0 && last.against != "" {
		p.line("every check passed, and the %s gives the same bytes as the %s", last.device, last.against)
	} else if findings == 0 {
		p.line("every check passed on the %s; not compared with %s", last.device, map[string]string{"CPU": "a GPU", "GPU": "the CPU"}[last.device])
	}
	_ = p.w.Flush() // the writer is standard output
	return findings
}

// samples prints the results of the samples, from the first device that computed them.
func (p *printer) samples(samples []Sample, tested []*side) {
	for _, s := range tested {
		if len(s.answers) != len(samples) || len(samples) == 0 {
			continue
		}
		p.line("\nsample\tbytes\tresult")
		for i, sample := range samples {
			p.line("%s\t%d\t%s", sample.Name, len(sample.Data), s.answers[i])
		}
		return
	}
}

// findings prints the first finding of each kind, with the number of other batches that have such a finding. It prints every
// sample with an unexpected result.
func (p *printer) findings(s *side) {
	count := map[Kind]int{}
	for _, f := range s.report.Findings {
		count[f.Kind]++
	}
	if len(s.report.Findings) > 0 {
		p.line("")
	}
	for _, f := range s.report.Findings {
		more, n := "", count[f.Kind]
		if f.Kind != Unexpected {
			count[f.Kind] = 0
		}
		switch {
		case n == 0:
			continue
		case n > 1 && f.Kind != Unexpected:
			more = fmt.Sprintf(" (and the like in %d more batches)", n-1)
		}
		p.line("wrong on the %s: %s%s", s.device, strings.ReplaceAll(f.String(), "\t", " "), more)
	}
}

// rates prints the throughput of the kernels.
func (p *printer) rates(tested []*side) {
	header := "\nthroughput of the kernel, records of"
	for _, bytes := range rateBytes {
		header += "\t" + size(bytes)
	}
	for _, s := range tested {
		if len(s.rates) == 0 {
			continue
		}
		if header != "" {
			p.line("%s", header)
			header = ""
		}
		row := s.device
		for _, rate := range s.rates {
			row += fmt.Sprintf("\t%.2f GB/s", rate/1e9)
		}
		p.line("%s", row)
	}
}

// size returns a number of bytes as text.
func size(bytes int) string {
	if bytes >= 1<<10 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}
