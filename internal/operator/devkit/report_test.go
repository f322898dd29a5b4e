package devkit

import (
	"errors"
	"strings"
	"testing"

	"millrace/internal/operator/compiled"
)

// printed returns the report of sides and the number of findings.
func printed(t *testing.T, sides ...*side) (string, int) {
	t.Helper()
	d := compiled.BuiltIn()[0]
	o, err := d.Bind("")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	n := printReport(&out, o, nil, sides...)
	return out.String(), n
}

func TestReportOfTwoDevices(t *testing.T) {
	clean := &Report{Records: 10, Done: 8}
	got, n := printed(t,
		&side{device: "CPU", with: "host", report: clean, rates: []float64{1.5e9, 2e9, 3e9}},
		&side{device: "GPU", with: "H100", report: clean, against: "CPU", rates: []float64{1e11, 2e11, 3e11}})
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

// TestReportOfFindings: the report has one line per kind of finding, and lists all samples with other results.
func TestReportOfFindings(t *testing.T) {
	finding := func(kind Kind, batch, text string) Finding {
		return Finding{Kind: kind, Batch: batch, Record: 1, Data: []byte("ab"), Text: text}
	}
	got, n := printed(t, &side{device: "CPU", missing: errors.New("no compiler")},
		&side{device: "GPU", with: "H100", report: &Report{Records: 10, Untested: []string{"7 records"}, Findings: []Finding{
			finding(ReadOutside, "a", "reads"), finding(ReadOutside, "b", "reads"),
			finding(Unexpected, "samples", "one"), finding(Unexpected, "samples", "two"),
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
