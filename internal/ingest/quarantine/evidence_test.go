package quarantine

import (
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
)

// in returns delivery number count of a payload.
func in(sequence uint64, count int) *inflight.Delivery {
	return &inflight.Delivery{Sequence: sequence, NumDelivered: count, Stored: time.Unix(int64(sequence), 0)}
}

func TestEvidenceRules(t *testing.T) {
	t.Parallel()
	busy, idle := func() bool { return false }, func() bool { return true }
	const limit = 5
	for name, c := range map[string]struct {
		before func(e *evidence) // earlier events
		failed []*inflight.Delivery
		since  uint64
		others int
		idle   func() bool
		want   Ruling
	}{
		"others came right":                             {func(e *evidence) { e.cameRight() }, []*inflight.Delivery{in(1, 1), in(2, 1)}, 0, 0, busy, GiveUp},
		"others came right, but before":                 {func(e *evidence) { e.cameRight() }, []*inflight.Delivery{in(1, 1), in(2, 1)}, 1, 0, busy, DeviceNotWell},
		"all of several failed":                         {nil, []*inflight.Delivery{in(1, 1), in(2, 1)}, 0, 0, idle, DeviceNotWell},
		"one failed, and there is no other":             {nil, []*inflight.Delivery{in(1, 1)}, 0, 0, idle, GiveUp},
		"one failed, and others wait":                   {nil, []*inflight.Delivery{in(1, 1)}, 0, 0, busy, holdBack},
		"often delivered, but failed once":              {nil, []*inflight.Delivery{in(1, 50)}, 0, 0, busy, holdBack},
		"it failed before, and nothing since":           {held(in(1, 1)), []*inflight.Delivery{in(1, 2)}, 0, 0, busy, holdBack},
		"it failed before, and others came right since": {func(e *evidence) { held(in(1, 1))(e); e.cameRight() }, []*inflight.Delivery{in(1, 2)}, 1, 0, busy, GiveUp},
		"another of its sequence failed before":         {held(&inflight.Delivery{Sequence: 1, NumDelivered: 1}), []*inflight.Delivery{in(1, limit)}, 0, 0, busy, holdBack},
		"it failed before, and came too often":          {held(in(1, 1)), []*inflight.Delivery{in(1, limit)}, 0, 0, busy, GiveUp},
		"it failed too often":                           {held(in(1, 1), in(1, 1), in(1, 1), in(1, 1)), []*inflight.Delivery{in(1, 1)}, 0, 0, busy, GiveUp},
		"many in a row":                                 {heldRow(MaxInRow - 1), []*inflight.Delivery{in(99, 1)}, 0, 0, idle, DeviceNotWell},
		"nearly as many":                                {heldRow(MaxInRow - 2), []*inflight.Delivery{in(99, 1)}, 0, 0, idle, GiveUp},
		"many, and one came right in between":           {func(e *evidence) { heldRow(MaxInRow - 1)(e); e.cameRight() }, []*inflight.Delivery{in(99, 1)}, 1, 0, busy, holdBack},
		"many compared with it":                         {nil, []*inflight.Delivery{in(1, 1)}, 0, MaxInRow - 1, busy, DeviceNotWell},
		"some compared with it":                         {nil, []*inflight.Delivery{in(1, 1)}, 0, MaxInRow - 2, busy, holdBack},
	} {
		e := &evidence{}
		if c.before != nil {
			c.before(e)
		}
		got := e.rule(c.failed, limit, Comparison{Since: c.since, Others: c.others, Idle: c.idle})
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got == GiveUp && e.holds(c.failed[0]) {
			t.Errorf("%s: it is given up and still held back", name)
		}
		if got == holdBack && e.held() == 0 {
			t.Errorf("%s: nothing counts as held back", name)
		}
	}
}

// held records that payloads failed alone while others waited.
func held(failed ...*inflight.Delivery) func(e *evidence) {
	return func(e *evidence) {
		for _, d := range failed {
			e.note(d)
		}
	}
}

// heldRow records that n different payloads failed alone.
func heldRow(n int) func(e *evidence) {
	return func(e *evidence) {
		for i := range n {
			e.note(in(uint64(i+1), 1))
		}
	}
}

// TestTryMarks shows that the note about a payload that is tried alone applies only to that payload.
func TestTryMarks(t *testing.T) {
	t.Parallel()
	at := time.Unix(7, 42)
	if got := parseAttemptNote(attemptNote{begun: 2, stored: at}.String(), at); got.begun != 2 {
		t.Errorf("2 tries come back as %d", got.begun)
	}
	for _, text := range []string{"", "2", "x 7", "-1 7000000042", attemptNote{begun: 2, stored: at.Add(1)}.String()} {
		if got := parseAttemptNote(text, at); got.begun != 0 {
			t.Errorf("%q counts as %d tries, want none", text, got.begun)
		}
	}
}
