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

// clock maps CUDA events onto the host's clock. An anchor is an event whose host time is known: it is recorded on a
// stream with nothing else on it, and the host looks at its clock before it records and after it saw it reached. Any
// other event is so much before or after it.
type clock struct {
	mu      sync.Mutex
	stream  streamHandle
	anchors [2]eventHandle
	current int           // the anchor in use
	at      time.Duration // its time on the scale of Device.Now
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
		before, after, err := c.record(d, 1-c.current)
		if err != nil {
			return err
		}
		if wait := after - before; best < 0 || wait < best {
			best = wait
			c.current, c.at = 1-c.current, before+wait/2
		}
	}
	return nil
}

func (c *clock) close(d *gpu) {
	for _, anchor := range c.anchors {
		if anchor != nil {
			_ = d.checked(d.lib.eventDestroy(anchor)) // a loss is noted
		}
	}
	if c.stream != nil {
		_ = d.checked(d.lib.streamDestroy(c.stream))
	}
}

// record records an anchor and waits until it is reached, which was between before and after.
func (c *clock) record(d *gpu, anchor int) (before, after time.Duration, err error) {
	before = d.Now()
	if err = d.lib.eventRecord(c.anchors[anchor], c.stream); err != nil {
		return 0, 0, err
	}
	if err = d.lib.eventSynchronize(c.anchors[anchor]); err != nil {
		return 0, 0, err
	}
	return before, d.Now(), nil
}

// timeOf is when the device reached a timed event.
func (c *clock) timeOf(d *gpu, e eventHandle) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Now()-c.at > anchorAge {
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
// allows, so that events timed by the old anchor and by the new one do not change places.
func (c *clock) renew(d *gpu) error {
	next := 1 - c.current
	before, after, err := c.record(d, next)
	if err != nil {
		return err
	}
	elapsed, err := c.since(d, c.anchors[next])
	if err != nil {
		return err
	}
	c.current, c.at = next, min(max(c.at+elapsed, before), after)
	return nil
}
