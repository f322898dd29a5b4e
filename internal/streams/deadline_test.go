package streams

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The clock counts only the time in which the process runs. It doesn't count while the process is stopped, suspended
// with the machine, or without a processor.
func TestOnlyTimeThatTheProcessRanCounts(t *testing.T) {
	const every = 500 * time.Millisecond
	now := time.Now()
	c := runClock{now, every}
	for _, gap := range []struct{ real, counts time.Duration }{
		{every, every}, {every + 7, every + 7}, {2 * every, 2 * every}, {20 * time.Second, 2 * every}, {time.Hour, 2 * every}, {every, every}, {0, 0},
	} {
		now = now.Add(gap.real)
		if got := c.tick(now); got != gap.counts {
			t.Errorf("after %v a tick counts %v, want %v", gap.real, got, gap.counts)
		}
	}
}

// The bound lies between Min and Max. It is Max before any batch has completed. It grows with the size of a batch
// beyond the sizes that have completed.
func TestBounds(t *testing.T) {
	const lanes = 4
	d := Deadline{Min: 10 * time.Second, Max: 2 * time.Minute}
	var u usualTimes
	bound := func(work int) time.Duration { return d.bound(u.estimate(work, d.Max), lanes) }
	if got := bound(1); got != d.Max {
		t.Errorf("before the first batch the bound is %v, want %v", got, d.Max)
	}
	for range 1000 {
		u.learn(1000, time.Millisecond)
	}
	for _, c := range []struct {
		work int
		want time.Duration
	}{
		{0, d.Min}, {1000, d.Min}, {100_000, d.Min}, // 128 times as long, so 4 s
		{1 << 20, 65536 * time.Millisecond}, // 2^11 times as long, times 8 and 4 lanes
		{4 << 20, d.Max}, {1 << 40, d.Max},
	} {
		if got := bound(c.work); got != c.want {
			t.Errorf("work of %d after batches of 1000 in 1ms each: %v, want %v", c.work, got, c.want)
		}
	}
	u.learn(4<<20, time.Second)
	if got := bound(4 << 20); got != 32*time.Second {
		t.Errorf("after a full batch in 1s the bound of another is %v, want 32s", got)
	}
	if got := bound(1 << 20); got != 32*time.Second {
		t.Errorf("a smaller batch of a new size: bound %v, want the larger batch's bound", got)
	}
	for range 1000 {
		u.learn(4<<20, 10*time.Millisecond)
	}
	if got := bound(4 << 20); got != d.Min {
		t.Errorf("after 1000 batches in 10ms each: %v, want %v", got, d.Min)
	}
}

// TestALongPayloadHasMoreTime checks the deadline of a single payload that is as large as a batch of many payloads. The payload occupies one
// unit of the device for as long as the batch would occupy the whole device.
func TestALongPayloadHasMoreTime(t *testing.T) {
	const units = 16
	many := workOf(1<<20, 512, 2<<10, units)
	one := workOf(1<<20, 1, 1<<20, units)
	if one < many*(units-1) {
		t.Errorf("one payload of 1 MiB is work of %d, and 512 payloads of 2 KiB are work of %d: want a factor of about %d", one, many, units)
	}
}

// The bound stays between Min and Max, whatever was observed.
func TestBoundsStayInBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	d := Deadline{Min: time.Second, Max: time.Hour}
	for range 200 {
		var u usualTimes
		for range random.IntN(50) {
			u.learn(random.IntN(1<<(1+random.IntN(40))), time.Duration(random.Int64N(int64(2*time.Hour))))
		}
		for range 50 {
			work := random.IntN(1 << (1 + random.IntN(50)))
			if got := d.bound(u.estimate(work, d.Max), 1+random.IntN(64)); got < d.Min || got > d.Max {
				t.Fatalf("work of %d: bound %v, want %v to %v", work, got, d.Min, d.Max)
			}
		}
	}
}

func TestDeadlinesThatCannotBe(t *testing.T) {
	for _, d := range []Deadline{{0, time.Second}, {2 * time.Second, time.Second}, {-1, time.Second}, {time.Second, -1}} {
		if d.check() == nil {
			t.Errorf("%+v: no error", d)
		}
	}
	for _, d := range []Deadline{{}, {time.Millisecond, time.Millisecond}, {time.Second, time.Minute}} {
		if err := d.check(); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
}
