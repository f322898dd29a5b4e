//go:build cgo

package cuda

import (
	"sync"
	"time"

	"millrace/internal/device"
)

// anchorAge is how old an anchor may be before it is set anew, which takes about as long as one empty stream
// synchronization. The host's clock and the GPU's drift apart meanwhile; and CUDA gives the time between two events as
// a float of milliseconds, which is exact to nanoseconds only over short times.
const anchorAge = 100 * time.Millisecond

// firstAnchors is how many anchors are tried at first. The one that was awaited in the least time is the best known.
const firstAnchors = 8

// openAnswer is how long a GPU may take to reach the first anchors, when nothing runs on it yet, and anchorAnswer those of
// later: without an answer by then the old anchor stays in use, and times are the less exact the older it gets.
const (
	openAnswer   = 10 * time.Second
	anchorAnswer = 20 * time.Millisecond
)

// anchorSpin is for how long an anchor is asked about without a nap in between: an empty stream takes some 10 us.
const anchorSpin = 200 * time.Microsecond

// anchorNap is how long the host naps between two questions from then on.
const anchorNap = 100 * time.Microsecond

// clock maps CUDA events onto the host's clock. An anchor is an event whose host time is known: it is recorded on a
// stream with nothing else on it, and the host looks at its clock before it records and after it saw it reached. Any
// other event is so much before or after it.
type clock struct {
	mu      sync.Mutex
	stream  streamHandle
	anchors [2]eventHandle
	current int           // the anchor in use
	at      time.Duration // its time on the scale of Device.Now
	tried   time.Duration // when an anchor was last set, or could not be
}

// init makes the clock's stream and events and sets the first anchor. If it fails, close frees what was made.
func (c *clock) init(d *gpu) (err error) {
	if c.stream, err = d.lib.streamCreate(d.handle); err != nil {
		return err
	}
	for i := range c.anchors {
		if c.anchors[i], err = d.lib.eventCreate(d.handle, device.Timed); err != nil {
			return err
		}
	}
	best := time.Duration(-1)
	for range firstAnchors {
		before, after, reached, err := c.record(d, 1-c.current, openAnswer)
		if err != nil {
			return err
		}
		if !reached {
			return d.errorf("open", device.ErrLost, "the GPU has not answered within %v", openAnswer)
		}
		if wait := after - before; best < 0 || wait < best {
			best = wait
			c.current, c.at = 1-c.current, before+wait/2
			c.tried = after
		}
	}
	return nil
}

func (c *clock) close(d *gpu) {
	for _, anchor := range c.anchors {
		if anchor != nil && d.Err() == nil {
			_ = d.checked(d.lib.eventDestroy(anchor)) // a loss is noted
		}
	}
	if c.stream != nil && d.Err() == nil {
		_ = d.checked(d.lib.streamDestroy(c.stream))
	}
}

// record records an anchor and asks for it until it is reached, which was between before and after, or the time is up.
func (c *clock) record(d *gpu, anchor int, limit time.Duration) (before, after time.Duration, reached bool, err error) {
	before = d.Now()
	if err = d.lib.eventRecord(c.anchors[anchor], c.stream); err != nil {
		return 0, 0, false, err
	}
	for {
		reached, err = d.lib.eventReached(c.anchors[anchor])
		after = d.Now()
		if reached || err != nil || after-before > limit {
			return before, after, reached, err
		}
		if after-before > anchorSpin {
			time.Sleep(anchorNap)
		}
	}
}

// timeOf is when the device reached a timed event.
func (c *clock) timeOf(d *gpu, e eventHandle) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Now()-c.tried > anchorAge {
		if err := c.renew(d); err != nil {
			return 0, err
		}
	}
	elapsed, err := c.since(d, e)
	return c.at + elapsed, err
}

// since is the time from the current anchor to an event.
func (c *clock) since(d *gpu, e eventHandle) (time.Duration, error) {
	ms, err := d.lib.eventElapsed(c.anchors[c.current], e)
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// renew sets a new anchor. By the old one its time is known to be so and so; that is kept as far as the host's clock
// allows, so that events timed by the old anchor and by the new one do not change places. Where the device does not answer
// the old one stays in use, for nobody is to wait for a device that hangs.
func (c *clock) renew(d *gpu) error {
	next := 1 - c.current
	before, after, reached, err := c.record(d, next, anchorAnswer)
	if err != nil {
		return err
	}
	c.tried = after
	if !reached {
		return nil
	}
	elapsed, err := c.since(d, c.anchors[next])
	if err != nil {
		return err
	}
	c.current, c.at = next, min(max(c.at+elapsed, before), after)
	return nil
}
