//go:build cgo

package cuda

import (
	"sync"
	"time"

	"millrace/internal/device"
)

// anchorAge is the age at which an anchor is renewed. Renewal takes about as long as one empty stream synchronization.
// It is needed because the clocks of host and GPU drift apart. Also, CUDA returns the time between two events as a
// float of milliseconds, which is exact to nanoseconds only over short intervals.
const anchorAge = 100 * time.Millisecond

// firstAnchors is the number of initial anchors to try. The anchor with the shortest wait is the most accurate.
const firstAnchors = 8

// openAnswer is the time limit for a GPU to reach the first anchors, before anything else runs on it. anchorAnswer is
// the limit for later anchors. If the GPU exceeds anchorAnswer, the old anchor stays in use, and times become less
// exact as it ages.
const (
	openAnswer   = 10 * time.Second
	anchorAnswer = 20 * time.Millisecond
)

// anchorSpin is the maximum time of polling an anchor without pauses. An empty stream takes about 10 us.
const anchorSpin = 200 * time.Microsecond

// anchorPause is the pause between two polls after anchorSpin.
const anchorPause = 100 * time.Microsecond

// clock maps CUDA events to the host's clock. An anchor is an event with a known host time, recorded on an otherwise
// empty stream. The host reads its clock before it records the anchor and after the anchor is reached. The time of an
// event is the anchor's time plus CUDA's elapsed time between the two.
type clock struct {
	mu      sync.Mutex
	stream  streamHandle
	anchors [2]eventHandle
	current int           // index of the anchor in use
	at      time.Duration // time of the anchor, on the scale of Device.Now
	tried   time.Duration // time of the last attempt to set an anchor
}

// init creates the clock's stream and events and sets the first anchor. If it fails, close frees the created objects.
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
			_ = d.checked(d.lib.eventDestroy(anchor)) // checked records a loss
		}
	}
	if c.stream != nil && d.Err() == nil {
		_ = d.checked(d.lib.streamDestroy(c.stream))
	}
}

// record records an anchor and polls it until it is reached or limit has passed. The anchor was reached between before
// and after.
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
			time.Sleep(anchorPause)
		}
	}
}

// timeOf returns the time at which the device reached a timed event.
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

// since returns the time from the current anchor to an event.
func (c *clock) since(d *gpu, e eventHandle) (time.Duration, error) {
	ms, err := d.lib.eventElapsed(c.anchors[c.current], e)
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// renew sets a new anchor. Its time follows from the old anchor, and is adjusted only as far as the host's clock
// requires. This keeps the order of events timed with the old and the new anchor. If the device doesn't answer, the old
// anchor stays in use, so that callers don't wait for a hung device.
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
