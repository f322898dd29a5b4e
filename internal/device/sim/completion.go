package sim

import (
	"container/heap"
	"context"
	"sync"
)

// Notify implements device.Stream.
func (s *Stream) Notify(token uint64) error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable("notify"); err != nil {
		return err
	}
	d.counts.notifies++
	n := d.counts.notifies
	_, never := d.match(LostCompletion, n)
	late, isLate := d.match(LateCompletion, n)
	o := &op{kind: Notify, token: token}
	o.effect = func() error {
		switch {
		case never:
		case isLate && late.Delay > 0:
			d.promised++
			heap.Push(&d.running, &op{kind: Notify, token: token, seq: o.seq, due: d.now + late.Delay})
		default:
			d.complete(token)
		}
		return nil
	}
	s.enqueue(o)
	return nil
}

// complete hands a token to WaitCompletion. The lock is held.
func (d *Device) complete(token uint64) {
	d.completions = append(d.completions, token)
	d.wake()
}

// WaitCompletion implements device.Device. It moves the clock to the next completion. If no completion can arrive on
// its own, because nothing is queued, because only gates delay work, or because of Hold, it blocks in real time until
// another goroutine changes that or ctx is done. It never makes a gate give way. Tokens that arrived before the device
// was lost are returned before ErrLost.
func (d *Device) WaitCompletion(ctx context.Context) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if len(d.completions) > 0 {
			token := d.completions[0]
			d.completions = d.completions[1:]
			return token, nil
		}
		if err := d.Usable("wait for completion"); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if d.holds == 0 && d.step() {
			continue
		}
		d.block(ctx)
	}
}

// block waits, without the lock, for the next change of state or for ctx. The caller holds the lock, and holds it again
// when block returns.
func (d *Device) block(ctx context.Context) {
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	changed := d.changed
	d.mu.Unlock()
	defer d.mu.Lock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// Hold keeps WaitCompletion, Event.Synchronize and Event.Done from moving the clock until release is called. So one
// goroutine can submit several operations at one instant although others wait. Hold doesn't affect Stream.Synchronize
// and Close, and Event.Done returns at once. Holds may overlap; a second call of release does nothing.
func (d *Device) Hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.holds--
		d.wake()
	})
}
