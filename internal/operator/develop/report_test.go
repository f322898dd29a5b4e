package develop

import (
	"errors"
	"strings"
	"testing"

	"millrace/internal/operator/compiled"
	"millrace/internal/operator/conformance"
)

// printed returns a report of outcomes and the number of findings.
func printed(t *testing.T, outcomes ...Outcome) (string, int) {
	t.Helper()
	d := compiled.BuiltIn()[0]
	o, err := d.Bind("")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	n := Print(&out, o, nil, outcomes)
	return out.String(), n
}

func TestReportOfTwoDevices(t *testing.T) {
	clean := &conformance.Report{Records: 10, Done: 8}
	got, n := printed(t,
		Outcome{Device: "CPU", With: "host", Report: clean, Rates: []float64{1.5e9, 2e9, 3e9}},
		Outcome{Device: "GPU", With: "H100", Report: clean, Against: "CPU", Rates: []float64{1e11, 2e11, 3e11}})
	want := `crc32c: version 1, host code
CPU: host
GPU: H100

throughput of the kernel, records of  256 B        2 KiB        64 KiB
CPU                                   1.50 GB/s    2.00 GB/s    3.00 GB/s
GPU                                   100.00 GB/s  200.00 GB/s  300.00 GB/s

CPU: 10 records in adversarial batches, of which 8 have a result; every check passed
GPU: 10 records in adversarial batches, of which 8 have a result; every check passed
every check passed, and the GPU gives the same bytes as the CPU
`
	if got != want || n != 0 {
		t.Errorf("%d findings, got\n%s", n, got)
	}
}

// The report has one line for each kind of finding, and all samples with another result.
func TestReportOfFindings(t *testing.T) {
	finding := func(kind conformance.Kind, batch, text string) conformance.Finding {
		return conformance.Finding{Kind: kind, Batch: batch, Record: 1, Data: []byte("ab"), Text: text}
	}
	got, n := printed(t, Outcome{Device: "CPU", Missing: errors.New("no compiler")},
		Outcome{Device: "GPU", With: "H100", Report: &conformance.Report{Records: 10, Untested: []string{"7 records"}, Findings: []conformance.Finding{
			finding(conformance.ReadOutside, "a", "reads"), finding(conformance.ReadOutside, "b", "reads"),
			finding(conformance.Unexpected, "samples", "one"), finding(conformance.Unexpected, "samples", "two"),
		}}})
	for _, want := range []string{"CPU: not tested: no compiler\n", `wrong on the GPU: batch "a", record 1 (2 bytes, "ab"): reads (and the like in 1 more batches)` + "\n",
		"): one\n", "): two\n", "not tested on the GPU: 7 records\n", "4 checks failed\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if n != 4 || strings.Contains(got, "every check") {
		t.Errorf("%d findings in\n%s", n, got)
	}
}
