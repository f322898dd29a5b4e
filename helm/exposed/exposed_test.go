package exposed_test

import (
	"slices"
	"testing"

	"millrace/helm/exposed"
)

func TestCheck(t *testing.T) {
	m, err := exposed.Read("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	m.Record("job:millrace_consumer_pending:max")
	for query, want := range map[string][]string{
		`rate(millrace_batches_total{device="GPU-1",namespace="n"}[5m])`:                                  nil,
		`histogram_quantile(0.9, sum by (le) (rate(millrace_stage_seconds_bucket{stage="publish"}[5m])))`: nil,
		`millrace_messages_total{outcome!="nacked"} and job:millrace_consumer_pending:max`:                nil,
		`up == 0`:                nil,
		`millrace_batches`:       {"nothing exposes millrace_batches"},
		`millrace_stage_seconds`: {"nothing exposes millrace_stage_seconds"},
		`millrace_ack_wait_seconds{device="GPU-1"}`: {"millrace_ack_wait_seconds has no label device"},
		`millrace_lanes{state="idle"}`: {
			`millrace_lanes: no value of state is state="idle" (there are: filling, free, in_flight)`,
		},
		`millrace_lanes{state=~"fill.+|free"}`: nil,
		`sum by (lane, state) (rate(millrace_lanes[5m]))`: {
			"nothing in rate(millrace_lanes[5m]) has a label lane",
		},
		`max by (device) (label_replace(millrace_ack_wait_seconds, "device", "x", "", ""))`: nil,
		`rate(millrace_batches_total`: {"1:28: parse error: unclosed left parenthesis"},
	} {
		if got := m.Check(query); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", query, got, want)
		}
	}
}

func TestReadSaysWhatIsMissing(t *testing.T) {
	if _, err := exposed.Read("exposed_test.go"); err == nil {
		t.Error("a file without a table was read")
	}
	if _, err := exposed.Read("nothing.md"); err == nil {
		t.Error("a missing file was read")
	}
}
