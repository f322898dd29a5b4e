package develop

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"millrace/internal/operator/compiled"
	"millrace/internal/operator/conformance"
)

// RateBytes are the sizes of records for which the throughput is measured.
var RateBytes = []int{256, 2 << 10, 64 << 10}

// Outcome is what a test found on one device.
type Outcome struct {
	Device  string              // "CPU" or "GPU"
	With    string              // the device and what compiled the operator
	Missing error               // why the operator wasn't tested there; the fields below are empty then
	Report  *conformance.Report // of the suite, the samples included
	Answers []conformance.Answer
	Against string    // the device whose results are the same unless a finding says otherwise; empty if there was none
	Rates   []float64 // bytes per second, one for each of RateBytes; empty if not measured
}

// tested returns the outcomes that have a report.
func tested(outcomes []Outcome) (some []Outcome) {
	for _, o := range outcomes {
		if o.Missing == nil {
			some = append(some, o)
		}
	}
	return some
}

// Print writes what a test found, and returns the number of findings.
func Print(w io.Writer, o *compiled.Operator, samples []Sample, outcomes []Outcome) (findings int) {
	p := &printer{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	d := o.Description()
	p.line("%s: version %d, %v", o, d.Version, d.Form)
	for _, one := range outcomes {
		if one.Missing != nil {
			p.line("%s: not tested: %v", one.Device, one.Missing)
		} else {
			p.line("%s: %s", one.Device, one.With)
		}
	}
	some := tested(outcomes)
	p.samples(samples, some)
	for _, one := range some {
		findings += p.findings(one)
	}
	p.rates(some)
	p.line("")
	for _, one := range some {
		for _, text := range one.Report.Untested {
			p.line("not tested on the %s: %s", one.Device, text)
		}
		p.line("%s: %d records in adversarial batches, of which %d have a result; %s", one.Device, one.Report.Records, one.Report.Done,
			verdict(len(one.Report.Findings)))
	}
	if findings == 0 {
		p.line("%s", conclusion(some))
	}
	_ = p.w.Flush() // the writer is standard output
	return findings
}

func verdict(findings int) string {
	if findings == 0 {
		return "every check passed"
	}
	return fmt.Sprintf("%d checks failed", findings)
}

// conclusion says what was compared.
func conclusion(some []Outcome) string {
	last := some[len(some)-1]
	if last.Against != "" {
		return fmt.Sprintf("every check passed, and the %s gives the same bytes as the %s", last.Device, last.Against)
	}
	other := map[string]string{"CPU": "a GPU", "GPU": "the CPU"}[last.Device]
	return fmt.Sprintf("every check passed on the %s; not compared with %s", last.Device, other)
}

// printer writes a report. Cells of a line are separated by tabs.
type printer struct{ w *tabwriter.Writer }

func (p *printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format+"\n", args...) }

// samples prints the results of the samples, as the first device that has them computed them.
func (p *printer) samples(samples []Sample, some []Outcome) {
	for _, one := range some {
		if len(one.Answers) != len(samples) || len(samples) == 0 {
			continue
		}
		p.line("\nsample\tbytes\tresult")
		for i, s := range samples {
			p.line("%s\t%d\t%s", s.Name, len(s.Data), one.Answers[i])
		}
		return
	}
}

// findings prints the first finding of each kind, and how many batches have the same one.
func (p *printer) findings(one Outcome) int {
	seen := map[conformance.Kind]int{}
	var order []conformance.Finding
	for _, f := range one.Report.Findings {
		if seen[f.Kind]++; seen[f.Kind] == 1 || f.Kind == conformance.Unexpected {
			order = append(order, f)
		}
	}
	for i, f := range order {
		more := ""
		if n := seen[f.Kind] - 1; n > 0 && f.Kind != conformance.Unexpected {
			more = fmt.Sprintf(" (and the like in %d more batches)", n)
		}
		if i == 0 {
			p.line("")
		}
		p.line("wrong on the %s: %s%s", one.Device, strings.ReplaceAll(f.String(), "\t", " "), more)
	}
	return len(one.Report.Findings)
}

// rates prints the throughput of the kernels.
func (p *printer) rates(some []Outcome) {
	first := true
	for _, one := range some {
		if len(one.Rates) == 0 {
			continue
		}
		if first {
			header := "\nthroughput of the kernel, records of"
			for _, bytes := range RateBytes {
				header += "\t" + size(bytes)
			}
			p.line("%s", header)
			first = false
		}
		row := one.Device
		for _, rate := range one.Rates {
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
