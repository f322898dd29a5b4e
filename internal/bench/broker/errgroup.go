package broker

import (
	"context"
	"sync"
)

// errGroup runs goroutines that work on one task. The first error cancels the context of all.
type errGroup struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	group  sync.WaitGroup
}

// newErrGroup makes a group under ctx. The caller must wait for it.
func newErrGroup(ctx context.Context) *errGroup {
	g := &errGroup{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

// start runs f in a new goroutine.
func (g *errGroup) start(f func(ctx context.Context) error) {
	g.group.Go(func() {
		if err := f(g.ctx); err != nil {
			g.cancel(err)
		}
	})
}

// wait waits for all goroutines and returns the first error, or nil.
func (g *errGroup) wait() error {
	g.group.Wait()
	err := context.Cause(g.ctx)
	g.cancel(nil)
	return err
}
