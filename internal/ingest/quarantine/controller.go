package quarantine

import (
	"context"
	"errors"
	"time"

	"millrace/internal/ingest/inflight"
)

// environment contains the functions of the worker that a Controller needs. The model test simulates it.
type environment interface {
	// fetch requests up to n deliveries, and passes each that must be processed to take. came is the number of deliveries that
	// arrived. If wait is set, fetch waits up to fetchWait for the first delivery.
	fetch(ctx context.Context, n int, wait bool, take func(inflight.Delivery)) (came int, err error)

	// outstanding returns the number of unsettled deliveries of all workers, and the number of redeliveries among them.
	outstanding(ctx context.Context) (all, redelivered int, err error)

	// awaitQuiet waits until at most mine of the worker's deliveries are unsettled, and the server has processed the acknowledgements.
	awaitQuiet(ctx context.Context, mine int) error

	// flow removes items from g and processes them outside quarantine. The items are first deliveries.
	flow(ctx context.Context, g *inflight.Batch, items []int) error

	// try runs items of g in an isolated batch while the devices run nothing else, and settles each item. It returns an error if
	// the device is lost or the drain ends.
	try(ctx context.Context, g *inflight.Batch, items []int) error

	now() time.Time
}

// Controller pulls while quarantined payloads may arrive. It holds at most the deliveries that fit into one isolated batch, and
// tries one level at a time with nothing else in flight. Each delivery of a payload therefore stands for one try. After a crash,
// the delivery counts show the next process the payloads that may be the cause.
type Controller struct {
	around    environment
	levels    Levels
	max       int // maximum payload bytes of a batch
	caution   caution
	held      heldSet
	checkedAt time.Time // time of the last check of the consumer
}

// checkEvery is the interval at which the Controller queries the consumer for quarantined payloads.
const checkEvery = time.Second

// Begin checks for unsettled deliveries of earlier processes. If the query fails, Begin assumes that there are some.
func (c *Controller) Begin(ctx context.Context) {
	all, redelivered, err := c.around.outstanding(ctx)
	if err != nil {
		all, redelivered = 1, 1
	}
	c.caution.begin(all, redelivered, c.around.now())
}

// IsDue reports whether the source must pull through the Controller.
func (c *Controller) IsDue() bool {
	return len(c.held.left) > 0 || c.caution.level(c.around.now()) > relaxed
}

// SetAside adds a quarantined delivery to the held set.
func (c *Controller) SetAside(d inflight.Delivery) {
	c.caution.saw(d.Level, c.around.now())
	c.held.add(d)
}

// Run pulls and tries deliveries until no quarantined payload can arrive, or ctx is done. If ctx is done, the held set may
// contain deliveries.
func (c *Controller) Run(ctx context.Context) error {
	for {
		if err := c.Play(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil || !c.IsDue() {
			return nil
		}
		came, err := c.gather(ctx)
		if err != nil {
			return errors.Join(err, c.Play(ctx))
		}
		if now := c.around.now(); came == 0 || now.Sub(c.checkedAt) >= checkEvery {
			c.check(ctx, now)
		}
	}
}

// gather fills the held set with deliveries for one isolated batch. The server sends redeliveries before new messages.
func (c *Controller) gather(ctx context.Context) (came int, err error) {
	take := c.SetAside
	came, err = c.around.fetch(ctx, 1, true, take)
	for more := came; more > 0 && err == nil && ctx.Err() == nil; came += more {
		n := min(c.held.room(c.levels, c.max), c.stride())
		if n == 0 {
			break
		}
		more, err = c.around.fetch(ctx, n, false, take)
	}
	return came, err
}

// stride returns the maximum number of deliveries per fetch. In strict mode it is 1, because a payload's level is known only
// after its delivery.
func (c *Controller) stride() int {
	if c.caution.level(c.around.now()) == strict {
		return 1
	}
	return c.levels.size(2)
}

// check queries the outstanding deliveries and updates the strictness.
func (c *Controller) check(ctx context.Context, now time.Time) {
	c.checkedAt = now
	if all, redelivered, err := c.around.outstanding(ctx); err == nil {
		c.caution.heard(all, redelivered, len(c.held.left))
	}
}

// Play tries all deliveries in the held set, one level at a time from the highest.
func (c *Controller) Play(ctx context.Context) error {
	for len(c.held.left) > 0 {
		if err := c.around.awaitQuiet(ctx, len(c.held.left)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		level, part := c.held.next(c.levels, c.max)
		run := c.around.try
		if level == 0 {
			run = c.around.flow
		}
		if err := run(ctx, c.held.g, part); err != nil {
			return err
		}
	}
	if len(c.held.g.Items) == 0 {
		return nil
	}
	if err := c.around.awaitQuiet(ctx, 0); err != nil {
		return err
	}
	c.held.clear()
	return nil
}

// Leave passes the remaining deliveries of the held set to unread.
func (c *Controller) Leave(unread func(inflight.Delivery)) {
	for _, i := range c.held.left {
		c.held.g.Settle(i)
		unread(c.held.g.HandOver(i))
	}
	c.held.left = nil
}
