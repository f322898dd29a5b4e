package lease

import (
	"context"
	"errors"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
)

// reader pulls a lease's deliveries. It is the same in both delivery modes. What differs is in its policy.
type reader struct {
	*inputs
	policy pullPolicy
}

// pullPolicy is the policy by which a lease pulls. partition implements it for exclusive delivery, and source for shared delivery.
type pullPolicy interface {
	// began is called at the start of a pull, and over at its end.
	began(ctx, drainCtx context.Context, p leasePull) (over func())

	// arrived takes a delivery. Its error ends the pull.
	arrived(ctx, drainCtx context.Context, d *inflight.Delivery) error

	// idle is called if no message has arrived within the request's idle time. Its error ends the pull.
	idle(ctx, drainCtx context.Context) error
}

// pull receives deliveries until ctx is done, the pull fails, or its policy ends it. It returns the reason, which is never nil.
func (r *reader) pull(ctx, drainCtx context.Context) error {
	p, err := r.server.pull()
	if err != nil {
		return err
	}
	defer r.policy.began(ctx, drainCtx, p)()
	var d inflight.Delivery // reused for all deliveries, because it escapes to the heap
	for ctx.Err() == nil {
		msg, err := p.next(ctx)
		switch {
		case err == nil:
			err = r.receive(ctx, drainCtx, msg, &d)
		case errors.Is(err, pull.ErrIdle):
			err = r.policy.idle(ctx, drainCtx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return ctx.Err()
}

// receive passes a message to the policy, and stores its delivery in d.
func (r *reader) receive(ctx, drainCtx context.Context, msg inflight.Incoming, d *inflight.Delivery) (err error) {
	if *d, err = inflight.NewDelivery(msg, time.Now()); err != nil {
		r.log.Error("message ignored", "error", err)
		return nil
	}
	if d.NumDelivered > 1 {
		r.o.Observer.Redelivered()
	}
	return r.policy.arrived(ctx, drainCtx, d)
}

// consumerPull implements leasePull with a real server.
type consumerPull struct{ *pull.Pull }

func (p consumerPull) next(ctx context.Context) (inflight.Incoming, error) {
	m, err := p.Next(ctx)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p consumerPull) rest(yield func(inflight.Incoming) bool) {
	for m := range p.Rest() {
		if !yield(m) {
			return
		}
	}
}

func (p consumerPull) leave(ctx context.Context, turn uint64) {
	defer p.Stop()
	for m := range p.Rest() {
		if m.Turn() > turn {
			_, _ = p.Claim(ctx, m) // if it fails, the next owner waits until the pin expires
			return
		}
	}
}
