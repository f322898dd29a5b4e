package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestVerdictsWhileTheStreamRefusesBySize changes the result stream's message size limit while workers store results, log entries and markers
// there. Some batches were built for a higher limit. Workers build them again and store the messages that then fit, and no state loses a
// decision. The test has one server, because servers don't check the size in atomic batches, which three replicas need.
func TestVerdictsWhileTheStreamRefusesBySize(t *testing.T) {
	need(t)
	t.Parallel()
	r := newRig(t, "exclusive")
	r.set("MILLRACE_EXACTLY_ONCE=required", "MILLRACE_PARTITIONS=2")
	input := r.nearDuplicates()
	r.serve(1)
	r.work(2)
	f := r.feed(endless, input)
	changes := times(50, 6)
	for n := range changes {
		r.awaitResults(500 + r.rng.IntN(1000))
		c := r.StreamConfig(resultStream)
		if c.MaxMsgSize = -1; n%2 == 0 {
			c.MaxMsgSize = 1500
		}
		r.Create(c)
	}
	f.finish()
	r.closeLate("with a state: the largest size of a message in the result stream changes", changes)
	r.wantSaid("message size exceeds maximum")
	r.wantHistory()
}

// wantSaid checks that at least one worker of the test has logged a text.
func (r *rig) wantSaid(text string) {
	r.t.Helper()
	for i := range r.starts {
		log, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprintf("worker-%d.log", i+1)))
		if err != nil {
			r.t.Fatal(err)
		}
		if bytes.Contains(log, []byte(text)) {
			return
		}
	}
	r.t.Errorf("no worker logs %q, so the test shows nothing", text)
}
