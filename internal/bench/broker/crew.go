package broker

import (
	"context"
	"sync"
)

// crew is goroutines that work at one thing: the first that fails stops all.
type crew struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	group  sync.WaitGroup
}

// newCrew is a crew under ctx. It must be waited for.
func newCrew(ctx context.Context) *crew {
	c := &crew{}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// do runs f in a goroutine of its own.
func (c *crew) do(f func(ctx context.Context) error) {
	c.group.Go(func() {
		if err := f(c.ctx); err != nil {
			c.cancel(err)
		}
	})
}

// wait returns when all have ended: the first error, or nil.
func (c *crew) wait() error {
	c.group.Wait()
	err := context.Cause(c.ctx)
	c.cancel(nil)
	return err
}
