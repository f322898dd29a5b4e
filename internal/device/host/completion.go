package host

import (
	"context"
	"sync/atomic"

	"millrace/internal/device"
)

// maxCompletions bounds the number of tokens that were notified and not yet returned by WaitCompletion.
const maxCompletions = 1 << 16

// completions carries tokens from streams to WaitCompletion, in the order in which the streams reached them.
type completions struct {
	tokens chan uint64
	owed   atomic.Int64 // notified, not yet returned; at most maxCompletions, so that tokens is never full
	closed chan struct{}
}

func newCompletions() completions {
	return completions{tokens: make(chan uint64, maxCompletions), closed: make(chan struct{})}
}

// reserve reserves capacity for one token. It returns false if there is none.
func (c *completions) reserve() bool {
	if c.owed.Add(1) > maxCompletions {
		c.owed.Add(-1)
		return false
	}
	return true
}

// cancel returns the capacity that reserve took.
func (c *completions) cancel() { c.owed.Add(-1) }

// close ends every wait. Device.Close calls it once.
func (c *completions) close() { close(c.closed) }

// WaitCompletion implements device.Device.
func (d *Device) WaitCompletion(ctx context.Context) (uint64, error) {
	const call = "wait completion"
	if err := d.Usable(call); err != nil {
		return 0, err
	}
	select {
	case token := <-d.completions.tokens:
		d.completions.cancel()
		return token, nil
	default:
	}
	select {
	case token := <-d.completions.tokens:
		d.completions.cancel()
		return token, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-d.faulted:
		return 0, d.Err()
	case <-d.completions.closed:
		return 0, d.Errorf(call, device.ErrClosed, "the device was closed")
	}
}
