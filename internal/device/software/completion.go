package software

import (
	"context"

	"millrace/internal/device"
)

// maxCompletions bounds the number of tokens that were notified and not yet returned by WaitCompletion.
const maxCompletions = 1 << 16

// completions carries tokens from streams to WaitCompletion, in the order in which the streams reached them. The
// device's lock guards it.
type completions struct {
	queued  int           // notifications in streams
	arrived []uint64      // tokens; those before first were fetched
	first   int           // index in arrived
	changed chan struct{} // holds a value once WaitCompletion must check the state again
}

func newCompletions() completions { return completions{changed: make(chan struct{}, 1)} }

// signal makes WaitCompletion check the state again.
func (c *completions) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// outstanding returns the number of tokens that were notified and not fetched.
func (c *completions) outstanding() int { return c.queued + len(c.arrived) - c.first }

// push adds a token. It uses the space of fetched tokens again once they are the most.
func (c *completions) push(token uint64) {
	if len(c.arrived) == cap(c.arrived) && c.first > len(c.arrived)/2 {
		c.arrived = c.arrived[:copy(c.arrived, c.arrived[c.first:])]
		c.first = 0
	}
	c.arrived = append(c.arrived, token)
	c.signal()
}

// pop returns the first token, or false if there is none.
func (c *completions) pop() (token uint64, ok bool) {
	if c.first == len(c.arrived) {
		return 0, false
	}
	token = c.arrived[c.first]
	if c.first++; c.first == len(c.arrived) {
		c.drop()
	}
	return token, true
}

// drop removes all tokens that arrived.
func (c *completions) drop() { c.arrived, c.first = c.arrived[:0], 0 }

// Notify implements device.Stream. It fails with ErrOutOfMemory while 65,536 completions are outstanding.
func (s *Stream) Notify(token uint64) error {
	const call = "notify"
	d := s.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := s.admit(call); err != nil {
		return err
	}
	if d.completions.outstanding() >= maxCompletions {
		return d.errorf(call, device.ErrOutOfMemory,
			"%d completions have not been waited for: call WaitCompletion", maxCompletions)
	}
	d.completions.queued++
	o := s.op(Notify)
	o.Token = token
	s.enqueue(o)
	return nil
}

// Complete hands a token to WaitCompletion. It is for the Clock, which holds the lock.
func (d *Device) Complete(token uint64) { d.completions.push(token) }

// WaitCompletion implements device.Device. Tokens that arrived before the device was lost are returned before ErrLost.
// A virtual clock moves to the next completion. If none can arrive on its own, because nothing is queued or only gates
// delay work, WaitCompletion blocks until another goroutine changes that or ctx is done.
func (d *Device) WaitCompletion(ctx context.Context) (uint64, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for {
		if token, ok := d.completions.pop(); ok {
			return token, nil
		}
		if err := d.usable("wait completion"); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if d.clock.Step(ForCompletion) {
			continue
		}
		d.Mu.Unlock()
		select {
		case <-d.completions.changed:
		case <-ctx.Done():
		}
		d.Mu.Lock()
	}
}

// gate stalls a stream until it is opened.
type gate struct {
	stream *Stream
	Opened bool // the Clock may set it, to make the gate give way
}

// Gate implements device.Gater. The gate may be opened more than once.
func (d *Device) Gate(s device.Stream) (open func(), err error) {
	const call = "gate"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	own, err := d.stream(call, s)
	if err != nil {
		return nil, err
	}
	if err := own.admit(call); err != nil {
		return nil, err
	}
	o := own.op(Gate)
	o.Gate = &gate{stream: own}
	open = o.Gate.Open // the stream may already use o for something else when open is called
	own.enqueue(o)
	return open, nil
}

// Open lets the stream pass the gate. It takes the lock.
func (g *gate) Open() {
	d := g.stream.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if g.Opened {
		return
	}
	g.Opened = true
	g.stream.changed.Broadcast()
	d.clock.Opened()
}
