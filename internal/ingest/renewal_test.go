package ingest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/layout"
	"millrace/internal/streams"
)

// renewStream makes the input stream anew, with other payloads under the sequences that there were.
func (r *rig) renewStream(n int) {
	r.t.Helper()
	r.deleteStream("INGEST")
	r.provision()
	r.publish(n, otherDocument)
}

func otherDocument(i int) []byte { return append(document(i), "of the second stream"...) }

// wantBoth checks that every sequence has a result of the first stream's input and one of the second's, each under its own id.
func (r *rig) wantBoth(n int) {
	r.t.Helper()
	results := r.stored("results.>")
	for i := range n {
		seq := uint64(i + 1)
		if len(results[seq]) != 2 {
			r.t.Errorf("sequence %d has %d results, want one of each stream", seq, len(results[seq]))
			continue
		}
		for k, payload := range []func(int) []byte{document, otherDocument} {
			m := results[seq][k]
			if err := r.opts.Format.Check(r.opts.Operators, payload(i), m.Data()); err != nil {
				r.t.Errorf("result %d of sequence %d: %v", k+1, seq, err)
			}
			id, plain := m.Headers().Get(jetstream.MsgIDHeader), "INGEST:"+strconv.FormatUint(seq, 10)
			if k == 0 && id != plain || k == 1 && !strings.HasPrefix(id, plain+":") {
				r.t.Errorf("result %d of sequence %d has the id %q", k+1, seq, id)
			}
		}
	}
}

// A stream that is deleted and made again begins with sequences whose ids the result stream knows.
func TestAStreamMadeAnewUnderAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Config{})
	r.tally.awaitStored(t, n)
	r.renewStream(n)
	r.tally.awaitStored(t, 2*n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantBoth(n)
	if again := r.tally.count(Duplicate); again != 0 {
		t.Errorf("%d results were dropped as duplicates", again)
	}
}

func TestAStreamMadeAnewBetweenWorkers(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{false, true} {
		t.Run("exclusive "+strconv.FormatBool(exclusive), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = exclusive, 1
			r.provision()
			const n = 50
			r.publish(n, document)
			first := r.run(hostDevice(t), streams.Config{})
			r.tally.awaitStored(t, n)
			if err := first.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			r.renewStream(n)
			second := r.run(hostDevice(t), streams.Config{})
			r.tally.awaitStored(t, 2*n)
			if err := second.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			r.wantBoth(n)
		})
	}
}

// A worker that was cut off while a stream was made anew hears of it by the sequences that come.
func TestSequencesTellOfAStreamMadeAnew(t *testing.T) {
	t.Parallel()
	asked := 0
	s := &source{renewal: func(context.Context) (layout.Renewed, error) { asked++; return layout.Renewed{}, nil }}
	for _, c := range []struct {
		sequence uint64
		stored   int64 // seconds
		asked    int
	}{
		{1, 10, 0}, {2, 11, 0}, {2, 11, 0}, {1, 10, 0}, // comes again
		{1, 20, 1}, {2, 21, 1}, {1, 20, 1},
	} {
		d := delivery{sequence: c.sequence, stored: time.Unix(c.stored, 0)}
		if err := s.distinguish(t.Context(), &d); err != nil || asked != c.asked {
			t.Errorf("sequence %d of second %d: asked %d times (%v), want %d", c.sequence, c.stored, asked, err, c.asked)
		}
	}
}
