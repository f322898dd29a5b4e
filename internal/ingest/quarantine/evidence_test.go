package quarantine

import (
	"slices"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
)

// in returns a delivery of a payload. count is the number of the delivery.
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
			t.Errorf("%s: no payload counts as held back", name)
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
		t.Errorf("a note of 2 tries is parsed as %d tries", got.begun)
	}
	for _, text := range []string{"", "2", "x 7", "-1 7000000042", attemptNote{begun: 2, stored: at.Add(1)}.String()} {
		if got := parseAttemptNote(text, at); got.begun != 0 {
			t.Errorf("%q counts as %d tries, want none", text, got.begun)
		}
	}
}

func TestLevelsEndAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		levels Levels
		sizes  []int // by level
		alone  int
	}{
		{Levels{Full: 8192, Limit: 10}, []int{8192, 512, 32, 2, 1, 1, 1, 1, 1, 1}, 4},
		{Levels{Full: 1024, Limit: 10}, []int{1024, 64, 4, 1, 1, 1, 1, 1, 1, 1}, 3},
		{Levels{Full: 8192, Limit: 4}, []int{8192, 512, 1, 1}, 2},
		{Levels{Full: 8192, Limit: 3}, []int{8192, 1, 1}, 1},
		{Levels{Full: 8192, Limit: 2}, []int{8192, 1}, 1},
		{Levels{Full: 8192, Limit: 1}, []int{8192}, 1},
		{Levels{Full: 1, Limit: 10}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1},
	} {
		var sizes []int
		for level := range c.levels.Limit {
			sizes = append(sizes, c.levels.Size(level))
		}
		if !slices.Equal(sizes, c.sizes) || c.levels.AloneLevel() != c.alone {
			t.Errorf("%+v: batches of %v, alone from %d; want %v, %d", c.levels, sizes, c.levels.AloneLevel(), c.sizes, c.alone)
		}
		for level := range c.levels.Limit {
			if got := c.levels.isGuilty(level); got != (level > c.alone) {
				t.Errorf("%+v: guilty at level %d is %t, and it runs alone from %d on", c.levels, level, got, c.alone)
			}
		}
	}
}

// TestCautionFollowsWhatTheConsumerSays shows that a worker starts in strict mode. It then follows the consumer's
// outstanding deliveries.
func TestCautionFollowsWhatTheConsumerSays(t *testing.T) {
	start := time.Unix(1000, 0)
	const horizon = time.Minute
	for _, c := range []struct {
		what                          string
		outstanding, redelivered, own int
		want                          strictness
	}{
		{"others have some that came again", 5, 2, 3, strict},
		{"others have some, and none came again", 5, 0, 3, cautious},
		{"all that is outstanding is this worker's", 3, 2, 3, relaxed},
		{"nothing is outstanding", 0, 0, 0, relaxed},
	} {
		k := caution{horizon: horizon}
		k.begin(5, 2, start)
		if got := k.level(start); got != strict {
			t.Fatalf("the strictness begins at %d, want %d", got, strict)
		}
		k.heard(c.outstanding, c.redelivered, c.own)
		if got := k.level(start); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	k := caution{horizon: horizon}
	k.begin(1, 0, start)
	if got := k.level(start); got != cautious {
		t.Errorf("with one outstanding first delivery, the strictness begins at %d, want %d", got, cautious)
	}
	if got := k.level(start.Add(horizon)); got != relaxed {
		t.Errorf("once every quarantined payload must have arrived, the strictness is %d, want %d", got, relaxed)
	}
}

// TestBytesInFlightAreBounded shows that a held set with the bytes of a batch accepts no more payloads. The payloads
// that are tried at once fit into one batch.
func TestBytesInFlightAreBounded(t *testing.T) {
	const limit = 100
	l := Levels{Full: 64, Limit: 10}
	h := heldSet{g: &inflight.Batch{}}
	add := func(size, headers, level int) {
		h.add(inflight.Delivery{Msg: &paperMsg{data: make([]byte, size)}, HeaderBytes: headers, Level: level})
	}
	add(60, 0, 0)
	if got := h.room(l, limit); got != 63 {
		t.Errorf("with 60 of %d bytes there is room for %d more, want 63 of a batch of 64", limit, got)
	}
	add(39, 0, 0)
	add(1, 0, 0)
	if got := h.room(l, limit); got != 0 {
		t.Errorf("with all of %d bytes there is room for %d more", limit, got)
	}
	add(90, 0, 0) // arrived before the space was checked
	var parts [][]int
	for len(h.left) > 0 {
		_, part := h.next(l, limit)
		parts = append(parts, part)
	}
	if want := [][]int{{0, 1, 2}, {3}}; !slices.EqualFunc(parts, want, slices.Equal) {
		t.Errorf("the groups that are tried at once are %v, want %v: each fits into a batch", parts, want)
	}
	h.clear()
	add(0, limit, 0)
	if got := h.room(l, limit); got != 0 {
		t.Errorf("with %d bytes of headers there is room for %d more", limit, got)
	}
}
