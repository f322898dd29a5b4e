package results

import (
	"bytes"
	"strings"
	"testing"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/record"
)

// decidedFrame returns another delivery of d, of which the given records fail.
func (r *rig) decidedFrame(w *Writer, d inflight.Delivery, failed ...int) inflight.Delivery {
	r.Helper()
	again := r.failedFrame(w, nil, lines(3, 3, 3))
	again.First, again.Stored, again.Received = false, d.Stored, d.Received
	for i := range 3 {
		again.Frame.Mark(i, record.OK)
	}
	for _, i := range failed {
		again.Frame.Mark(i, record.OperatorError)
	}
	again.Frame.Fail(nil) // the results are computed
	return again
}

// stored returns the reasons of the records in the stored result, and the numbers of the records with a dead letter.
func (r *rig) stored(result, dead string) (reasons, letters string) {
	r.Helper()
	for _, m := range r.Stored(result) {
		if m.Header.Get(HeaderReason) != "" || !strings.HasPrefix(m.Subject, "results.") {
			continue
		}
		for line := range bytes.Lines(m.Data) {
			reason := "ok"
			if _, rest, failed := strings.Cut(string(line), `"reason":"`); failed {
				reason, _, _ = strings.Cut(rest, `"`)
			}
			reasons += reason + ","
		}
	}
	for _, m := range r.Stored(dead) {
		letters += m.Header.Get(HeaderRecord)
	}
	return reasons, letters
}

// TestDecisionsOfAnEarlierDeliveryStay delivers a frame twice to workers with different settings, so that different records fail. The
// first worker dies after it has stored dead letters or the result. The final outcome must keep everything that the first worker stored.
func TestDecisionsOfAnEarlierDeliveryStay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second    []int // records that fail
		result           bool  // whether the first worker stored the result
		reasons, letters string
	}{
		"dead letters":          {[]int{1}, nil, false, "ok,operator_error,ok,", "1"},
		"dead letters and more": {[]int{1}, []int{2}, false, "ok,operator_error,operator_error,", "12"},
		"a result":              {nil, []int{0}, true, "ok,ok,ok,", ""},
		"all":                   {[]int{1}, []int{2}, true, "ok,operator_error,ok,", "1"},
	} {
		t.Run("shared/"+name, func(t *testing.T) {
			t.Parallel()
			r, w := newRig(t, nil)
			d := r.decidedFrame(w, r.input(1, nil), c.first...)
			b := &inflight.Batch{}
			b.Add(d)
			if c.result {
				natstest.OK(t, w.Store(r.Ctx(), b, new(Buffers), noSink{}))
			} else {
				natstest.OK(t, r.storeRecordLetters(w, d, nil))
			}
			b = &inflight.Batch{}
			b.Add(r.decidedFrame(w, d, c.second...))
			natstest.OK(t, r.writer(func(*Options) {}).Store(r.Ctx(), b, new(Buffers), noSink{}))
			if reasons, letters := r.stored("RESULTS", "RESULTS"); reasons != c.reasons || letters != c.letters {
				t.Errorf("the result is %q and records %q have dead letters, want %q and %q", reasons, letters, c.reasons, c.letters)
			}
		})
		t.Run("exclusive/"+name, func(t *testing.T) {
			t.Parallel()
			r, w := provisioned(t, true, 1<<20, nil)
			first := r.lease(w, "first")
			d := r.decidedFrame(w, r.input(1, nil), c.first...)
			b := &inflight.Batch{}
			b.Add(d)
			if c.result {
				natstest.OK(t, first.Store(r.Ctx(), b, new(Buffers), noSink{}))
			} else {
				natstest.OK(t, (&task{Writer: w, protocol: &chain{Commits: first}, b: b, s: new(Buffers), sink: noSink{}, to: len(b.Items)}).storeLetters(r.Ctx()))
			}
			second := r.lease(w, "second")
			again := r.decidedFrame(w, d, c.second...)
			settled, err := second.Known(r.Ctx(), &again)
			natstest.OK(t, err)
			if settled != c.result {
				t.Fatalf("the input is settled: %t, want %t", settled, c.result)
			}
			b = &inflight.Batch{}
			if !settled {
				b.Add(again)
			}
			natstest.OK(t, second.Store(r.Ctx(), b, new(Buffers), noSink{}))
			if reasons, letters := r.stored("RESULTS", "RESULTS_DEADLETTER"); reasons != c.reasons || letters != c.letters {
				t.Errorf("the result is %q and records %q have dead letters, want %q and %q", reasons, letters, c.reasons, c.letters)
			}
		})
	}
}
