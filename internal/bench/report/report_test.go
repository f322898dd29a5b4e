package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestReportReadsBackAsItWasWritten(t *testing.T) {
	want := &Report{
		Version: Version, Command: "worker bench", Commit: "abc", Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Devices: []Device{{Kind: "host", ID: "host", Name: "host (2 cores)", Driver: "d", Runtime: "r", Compute: "9.0", Units: 2}},
		Rows: []Row{{
			Group: "schedules", Name: "triple", Device: "host", Lanes: 4, Buffers: 2, BatchBytes: 1 << 20, Operator: "mix", Batches: 70,
			Batch:   &Spread{Median: 1, Low: 0.5, High: 2, N: 5},
			Stages:  map[string]Spread{"copy_in": {Median: 0.1, Low: 0.1, High: 0.2, N: 9}},
			Figures: []Figure{{Name: "speedup over serial", Unit: "x", Spread: Spread{Median: 3, Low: 2.9, High: 3.1, N: 5}}},
		}, {Group: "schedules", Name: "cluster", Device: "host", Skipped: "no clusters"}},
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"batch_seconds"`) || !strings.Contains(string(text), `"median":3`) {
		t.Errorf("the document's names have changed:\n%s", text)
	}
	got := &Report{}
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back\n%+v\nwant\n%+v", got, want)
	}
}

func TestFigure(t *testing.T) {
	r := Row{Figures: []Figure{{Name: "a", Spread: Spread{Median: 1}}, {Name: "b", Spread: Spread{Median: 2}}}}
	if f, ok := r.Figure("b"); !ok || f.Median != 2 {
		t.Errorf("figure b is %+v, %v", f, ok)
	}
	if _, ok := r.Figure("c"); ok {
		t.Error("there is a figure c")
	}
}
