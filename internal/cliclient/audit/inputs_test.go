package audit

import (
	"testing"
	"time"
)

// TestInputsAroundATime finds the last input before a time and the first input from that time on, even beside removed
// inputs.
func TestInputsAroundATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(12)
	r.remove("IN", 5)
	r.remove("IN", 6)
	in := &inputs{js: r.JS, topology: r.auditor.Topology}
	if err := in.read(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	last := r.stored[12].Add(time.Nanosecond)
	for at, want := range map[time.Time][2]uint64{
		r.stored[1]: {0, 1}, r.stored[2]: {1, 2}, r.stored[4]: {3, 4}, r.stored[5]: {4, 7}, r.stored[7]: {4, 7}, r.stored[8]: {7, 8}, r.stored[12]: {11, 12}, last: {12, 0},
	} {
		before, after, err := in.around(r.Ctx(), at)
		if err != nil || before != want[0] || after != want[1] {
			t.Errorf("around %v: inputs %d and %d: %v; want %v", at, before, after, err, want)
		}
	}
}
