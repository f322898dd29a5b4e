package quarantine

import (
	"context"
	"errors"
	"time"

	"millrace/internal/ingest/inflight"
)

// environment is what careful pulling needs of the worker around it. A simulation stands in for it in tests.
type environment interface {
	// fetch asks the server for up to n deliveries and hands each that is to be processed to take. It says how many
	// came. Where wait is set it waits a while for the first.
	fetch(ctx context.Context, n int, wait bool, take func(inflight.Delivery)) (came int, err error)

	// outstanding is how many deliveries nobody has settled, and how many of those came again.
	outstanding(ctx context.Context) (all, redelivered int, err error)

	// quiet returns once everything that the worker has taken, but for those mine, is settled and the server knows it.
	quiet(ctx context.Context, mine int) error

	// flow processes fresh items of g as any others. They are not g's any more.
	flow(ctx context.Context, g *inflight.Batch, items []int) error

	// try runs items of g in a batch of their own with nothing else on the devices and brings each to its end. It
	// fails when the device is lost or the worker gives up.
	try(ctx context.Context, g *inflight.Batch, items []int) error

	now() time.Time
}

// Controller pulls while suspects are about: it takes no more in hand than it tries at once, and tries one level at a
// time with nothing else in hand. So a delivery counts as tried where it was tried, and what a crash leaves to the next
// process says which payloads may be to blame.
type Controller struct {
	around    environment
	levels    Levels
	most      int // payload bytes of a batch
	caution   caution
	held      heldSet
	checkedAt time.Time // when the consumer was last asked
}

// checkEvery is how often the consumer is asked whether anything suspect is left.
const checkEvery = time.Second

// Begin asks whether an earlier process left anything. Where that cannot be learnt it may have left the worst.
func (c *Controller) Begin(ctx context.Context) {
	all, redelivered, err := c.around.outstanding(ctx)
	if err != nil {
		all, redelivered = 1, 1
	}
	c.caution.begin(all, redelivered, c.around.now())
}

// Due says whether to pull carefully.
func (c *Controller) Due() bool {
	return len(c.held.left) > 0 || c.caution.level(c.around.now()) > relaxed
}

// SetAside takes a suspect in hand that came where none was expected.
func (c *Controller) SetAside(d inflight.Delivery) {
	c.caution.saw(d.Level, c.around.now())
	c.held.add(d)
}

// Run pulls carefully until nothing suspect is about or ctx is done; then something may be left in hand.
func (c *Controller) Run(ctx context.Context) error {
	for {
		if err := c.Play(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil || !c.Due() {
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

// gather takes in hand what can be tried at once. Suspects come from the server before fresh payloads do.
func (c *Controller) gather(ctx context.Context) (came int, err error) {
	take := c.SetAside
	came, err = c.around.fetch(ctx, 1, true, take)
	for more := came; more > 0 && err == nil && ctx.Err() == nil; came += more {
		n := min(c.held.room(c.levels, c.most), c.stride())
		if n == 0 {
			break
		}
		more, err = c.around.fetch(ctx, n, false, take)
	}
	return came, err
}

// stride is how many are fetched at once. A level is known only when its delivery has come, so while the worst is to be
// expected they come one by one.
func (c *Controller) stride() int {
	if c.caution.level(c.around.now()) == strict {
		return 1
	}
	return c.levels.size(2)
}

// check asks whether anything suspect is left.
func (c *Controller) check(ctx context.Context, now time.Time) {
	c.checkedAt = now
	if all, redelivered, err := c.around.outstanding(ctx); err == nil {
		c.caution.heard(all, redelivered, len(c.held.left))
	}
}

// Play brings everything in hand to its end, one level at a time from the highest.
func (c *Controller) Play(ctx context.Context) error {
	for len(c.held.left) > 0 {
		if err := c.around.quiet(ctx, len(c.held.left)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		level, part := c.held.next(c.levels, c.most)
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
	if err := c.around.quiet(ctx, 0); err != nil {
		return err
	}
	c.held.clear()
	return nil
}

// Leave takes what is left in hand when intake has ended.
func (c *Controller) Leave(unread func(inflight.Delivery)) {
	for _, i := range c.held.left {
		c.held.g.Settle(i)
		unread(c.held.g.HandOver(i))
	}
	c.held.left = nil
}
