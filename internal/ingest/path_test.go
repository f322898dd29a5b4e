package ingest

import (
	"os"
	"strconv"
	"testing"

	"millrace/internal/frame"
	"millrace/internal/streams"
)

// TestOneMessageAtATime sends each message after the result of the one before, so each is a batch. tools/path runs it with different
// numbers of messages and compares what they execute.
func TestOneMessageAtATime(t *testing.T) {
	n := 3
	if text := os.Getenv("MILLRACE_PATH_MESSAGES"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for name, c := range map[string]struct {
		framing frame.Framing
		payload func(i int) []byte
	}{
		"plain": {frame.None, document},
		"frame": {frame.NewlineDelimited, func(int) []byte { return []byte("one\ntwo\nthree\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, 2, func(t *testing.T, r *rig) {
				r.opts.Split = frame.Splitter{Framing: c.framing, MaxRecords: 65536, MaxBytes: 64 << 20}
				r.provision()
				run := r.run(hostDevice(t), streams.Options{})
				for i := range n {
					r.publishFrom(i, i+1, c.payload)
					r.tally.awaitStored(t, i+1)
				}
				run.finish()
				r.wantSettled(n)
			})
		})
	}
}
