package audit

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestUnknownEndsWhereOutcomesAreKept shows that only earlier inputs are unknown, because they may have lost their
// outcomes. Later inputs are judged one at a time.
func TestUnknownEndsWhereOutcomesAreKept(t *testing.T) {
	t.Parallel()
	report := &Report{limit: 10}
	j := &judge{inputs: &inputs{info: &jetstream.StreamInfo{}}, report: report, covers: true, complete: true, settled: 10, decided: 10, kept: 5}
	if end, judged := j.atOnce(1, 8); end != 4 || !judged {
		t.Errorf("inputs are judged up to %d: %v, want 4", end, judged)
	}
	if end, judged := j.atOnce(5, 8); end != 8 || judged {
		t.Errorf("later inputs are judged up to %d: %v; want all of them read", end, judged)
	}
	if got := brief(report); got != "unknown 1-4" {
		t.Errorf("got %s, want unknown 1-4", got)
	}
}
