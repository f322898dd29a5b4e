package bench

import (
	"bytes"
	"strings"
	"testing"

	"millrace/internal/bench/report"
)

func TestTableShowsWhatRowsHaveToSay(t *testing.T) {
	var out bytes.Buffer
	s := idleSession(1)
	s.printer.out = &out
	one := func(v float64) report.Spread { return report.Spread{Median: v, Low: v, High: v, N: 1} }
	batch := report.Spread{Median: 300e-6, Low: 290e-6, High: 310e-6, N: 5}
	s.report.Rows = []report.Row{
		{Group: "schedules", Name: "before", Device: "gpu"},
		{Group: "schedules", Name: "triple", Device: "gpu", Operator: "mix?rounds=9", BatchBytes: 16 << 20, Lanes: 4, Batch: &batch,
			Stages: map[string]report.Spread{"copy_in": one(250e-6)},
			Figures: []report.Figure{
				{Name: overSerial.name, Unit: "x", Spread: one(2.84)}, {Name: ofCeiling.name, Spread: one(0.973)}, {Name: overBaseline.name, Unit: "x", Spread: one(0.995)}, {Name: overCUDASerial.name, Unit: "x", Spread: one(2.77)},
			}},
		{Group: "schedules", Name: "cluster", Device: "gpu", Operator: "mix?rounds=9", BatchBytes: 16 << 20, Skipped: "no clusters"},
	}
	s.compareBaseline(&Case{baseline: &baseline{}})
	s.Note("a note")
	s.Note("a note")
	if err := s.print(1); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"16 MiB", "300 (290-310)", "55.9", "250", "2.84x", "97.3 %", "0.995x", "2.77x", "x CUDA serial: speedup over the serial schedule of the baseline program", "x own serial: speedup over our own serial schedule", "cluster on gpu: -: no clusters",
		"Nothing here is compared with plain CUDA, because there is no baseline program", "not over plain CUDA",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table does not say %q", want)
		}
	}
	for _, unwanted := range []string{"device", "operator", "compute", "knee"} {
		if heading := strings.SplitN(text, "\n", 3)[1]; strings.Contains(heading, unwanted) {
			t.Errorf("the table contains %q, although no row has this figure", unwanted)
		}
	}
	if strings.Contains(text, "before") {
		t.Error("the table repeats a row of an earlier table")
	}
	if strings.Count(text, "a note") != 1 {
		t.Error("the table doesn't contain the note exactly once")
	}
	if t.Failed() {
		t.Log(text)
	}
	out.Reset()
	if err := s.print(1); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "x own serial: speedup") || strings.Contains(out.String(), "a note") {
		t.Errorf("the second table repeats text of the first:\n%s", out.String())
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{1234.5: "1,235", 100: "100", 99.96: "100", 12.34: "12.3", 0.01234: "0.0123", 0: "0"} {
		if got := Number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
	if got := bytesText(1536 << 10); got != "1.5 MiB" {
		t.Errorf("got %q", got)
	}
}
