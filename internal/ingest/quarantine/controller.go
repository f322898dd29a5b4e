// Package quarantine isolates payloads that may break the device, and finds the payload that does.
//
// A payload that was delivered before and not settled may have ended the process that received it. A Controller pulls a few such
// payloads at a time. It tries the payloads in isolated batches that get smaller with every delivery, until each payload is
// alone. A Rerun halves a batch on which an operator failed, until it has found the
// payload that fails. A Judge gives up a payload only with evidence that the device
// works, because probes pass and other payloads succeed (adr/0031).
//
// Both delivery modes compute failed batches again with a Rerun. Only shared delivery uses the Controller, the Bisector and Attempts.
// Start reading at Rerun.Compute and Controller.
package quarantine

import (
	"context"
	"errors"
	"slices"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Intake is the source of a Controller's deliveries. Shared delivery implements it.
type Intake interface {
	// Fetch requests up to n deliveries, waits up to wait for the first, and passes each that must be processed to SetAside. came is
	// the number of deliveries that arrived.
	Fetch(n int, wait time.Duration) (came int, err error)

	// HandOn processes a new delivery outside quarantine.
	HandOn(d inflight.Delivery)

	// AwaitQuiet waits until at most n of the worker's deliveries are unsettled, and the server has processed the acknowledgements.
	AwaitQuiet(ctx context.Context, n int) error
}

// Controller pulls while quarantined payloads may arrive. It holds at most the deliveries that fit into one isolated batch, and
// tries one level at a time with nothing else in flight. Each delivery of a payload therefore stands for one try. After a crash,
// the delivery counts show the next process the payloads that may be the cause.
type Controller struct {
	in        Intake
	pipes     []*streams.Pipeline
	trier     *tester
	drainCtx  context.Context // limits the wait for batches on a device
	max       int             // maximum payload bytes of a batch
	caution   caution
	held      heldSet
	checkedAt time.Time // time of the last check of the consumer
}

// NewController returns a Controller that pulls through in. limit is the maximum number of payload bytes per batch. Batches may
// finish until drainCtx ends. Only the goroutine that pulls may use the Controller.
func NewController(drainCtx context.Context, in Intake, pipes []*streams.Pipeline, limit int, ackWait time.Duration, i Isolation) *Controller {
	return &Controller{
		in: in, pipes: pipes, trier: newTester(i), drainCtx: drainCtx, max: limit, held: heldSet{g: i.Pool.NewBatch(i.Queue)},
		caution: caution{horizon: ackWait + inflight.MaxNakDelay},
	}
}

// checkEvery is the interval at which the Controller queries the consumer for quarantined payloads.
const checkEvery = time.Second

// Begin checks for unsettled deliveries of earlier processes. If the query fails, Begin assumes that there are some.
func (c *Controller) Begin(ctx context.Context) {
	all, redelivered, err := c.trier.Attempts.outstanding(ctx)
	if err != nil {
		all, redelivered = 1, 1
	}
	c.caution.begin(all, redelivered, time.Now())
}

// IsDue reports whether the source must pull through the Controller.
func (c *Controller) IsDue() bool {
	return len(c.held.left) > 0 || c.caution.level(time.Now()) > relaxed
}

// SetAside adds a quarantined delivery to the held set.
func (c *Controller) SetAside(d inflight.Delivery) {
	c.caution.saw(d.Level, time.Now())
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
		if now := time.Now(); came == 0 || now.Sub(c.checkedAt) >= checkEvery {
			c.check(ctx, now)
		}
	}
}

// fetchWait is the maximum time for which a fetch waits for a payload. The end of intake does not shorten it, because the server
// would redeliver messages in transit only after AckWait.
const fetchWait = 250 * time.Millisecond

// gather fills the held set with deliveries for one isolated batch. The server sends redeliveries before new messages.
func (c *Controller) gather(ctx context.Context) (came int, err error) {
	came, err = c.in.Fetch(1, fetchWait)
	for more := came; more > 0 && err == nil && ctx.Err() == nil; came += more {
		n := min(c.held.room(c.trier.Levels, c.max), c.stride())
		if n == 0 {
			break
		}
		more, err = c.in.Fetch(n, 0)
	}
	return came, err
}

// stride returns the maximum number of deliveries per fetch. In strict mode it is 1, because a payload's level is known only
// after its delivery.
func (c *Controller) stride() int {
	if c.caution.level(time.Now()) == strict {
		return 1
	}
	return c.trier.Levels.Size(2)
}

// check queries the outstanding deliveries and updates the strictness.
func (c *Controller) check(ctx context.Context, now time.Time) {
	c.checkedAt = now
	if all, redelivered, err := c.trier.Attempts.outstanding(ctx); err == nil {
		c.caution.heard(all, redelivered, len(c.held.left))
	}
}

// Play tries all deliveries in the held set, one level at a time from the highest.
func (c *Controller) Play(ctx context.Context) error {
	for len(c.held.left) > 0 {
		if err := c.in.AwaitQuiet(ctx, len(c.held.left)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		level, part := c.held.next(c.trier.Levels, c.max)
		if level == 0 {
			c.flow(part)
		} else if err := c.try(part); err != nil {
			return err
		}
	}
	if len(c.held.g.Items) == 0 {
		return nil
	}
	if err := c.in.AwaitQuiet(ctx, 0); err != nil {
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

// flow removes items, which are first deliveries, from the held set, and processes them outside quarantine.
func (c *Controller) flow(items []int) {
	for _, i := range items {
		c.held.g.Settle(i)
		c.in.HandOn(c.held.g.HandOver(i))
	}
}

// try runs items of the held set in an isolated batch while the devices run nothing else, and settles each. It uses another device
// for each level if there are several, because a device may be the cause of the failures. It returns an error if the device is lost.
func (c *Controller) try(items []int) error {
	pipe := c.pipes[c.held.g.Items[items[0]].Level%len(c.pipes)]
	err := c.trier.isolate(c.drainCtx, pipe, c.held.g, items)
	if errors.Is(err, context.Canceled) {
		return nil // the drain timed out, and the worker gives back the remaining deliveries
	}
	return err
}

// strictness is the degree to which the pull isolates payloads.
type strictness uint8

const (
	relaxed  strictness = iota // no quarantined payload can arrive, so the worker prefetches
	cautious                   // payloads that were delivered once before may arrive
	strict                     // payloads that were delivered several times may arrive, and one of them may break the device
)

// caution determines the strictness of the pull. After the death of a process, a prefetched message can't be distinguished from a
// tried one, because the server counts both as delivered. The worker therefore prefetches only while no quarantined payload can
// arrive. caution infers this from recently delivered quarantined payloads, and from the consumer's number of outstanding
// deliveries.
type caution struct {
	horizon time.Duration // maximum time until an unsettled payload is redelivered

	cautiousUntil time.Time
	strictUntil   time.Time
}

// saw records a delivery with the given quarantine level.
func (c *caution) saw(level int, now time.Time) {
	if level >= 1 {
		c.cautiousUntil = now.Add(c.horizon)
	}
	if level >= 2 {
		c.strictUntil = now.Add(c.horizon)
	}
}

// begin records the number of outstanding deliveries at the start of the worker, and the number of redeliveries among them. These
// deliveries belong to other workers, including dead ones.
func (c *caution) begin(outstanding, redelivered int, now time.Time) {
	if outstanding > 0 {
		c.saw(1, now)
	}
	if redelivered > 0 {
		c.saw(2, now)
	}
}

// heard records later numbers of outstanding deliveries and redeliveries. own is the number of deliveries that this worker holds.
// If it holds all outstanding deliveries, no quarantined payload is left at the server. If no delivery is a redelivery, the next
// delivery of each payload is at most the second one.
func (c *caution) heard(outstanding, redelivered, own int) {
	if redelivered == 0 || outstanding <= own {
		c.strictUntil = time.Time{}
	}
	if outstanding <= own {
		c.cautiousUntil = time.Time{}
	}
}

func (c *caution) level(now time.Time) strictness {
	switch {
	case now.Before(c.strictUntil):
		return strict
	case now.Before(c.cautiousUntil):
		return cautious
	}
	return relaxed
}

// heldSet holds the untried deliveries of a Controller: quarantined payloads and new payloads that arrived in between. If one
// payload breaks the device, all payloads in the set are redelivered with a higher level. The set is therefore small, and the
// highest level is tried first. A payload that runs alone never waits for another payload.
type heldSet struct {
	g     *inflight.Batch // keeps the deliveries alive
	left  []int           // indices of the deliveries in g that were not tried yet
	bytes int             // total bytes of all deliveries, including headers
	top   int             // the highest level of the deliveries
}

func (h *heldSet) add(d inflight.Delivery) {
	h.left = append(h.left, len(h.g.Items))
	h.g.Add(d)
	h.bytes += len(d.Msg.Data()) + d.HeaderBytes
	h.top = max(h.top, d.Level)
}

// room returns the number of deliveries that may be added. All deliveries must fit into one batch of the highest level, with
// about limit bytes in total.
func (h *heldSet) room(l Levels, limit int) int {
	if h.bytes >= limit {
		return 0
	}
	return max(l.Size(h.top)-len(h.left), 0)
}

// next removes the oldest items of the highest level and returns them. They fit into one batch of that level, with up to limit
// bytes. next returns no items if the set is empty.
func (h *heldSet) next(l Levels, limit int) (level int, part []int) {
	for _, i := range h.left {
		level = max(level, h.g.Items[i].Level)
	}
	size, bytes := l.Size(level), 0
	h.left = slices.DeleteFunc(h.left, func(i int) bool {
		d := &h.g.Items[i]
		n := len(d.Msg.Data())
		if d.Level != level || len(part) >= size || len(part) > 0 && bytes+n > limit {
			return false
		}
		part = append(part, i)
		bytes += n
		return true
	})
	return level, part
}

// clear empties the set after all its deliveries were tried.
func (h *heldSet) clear() {
	h.g.Clear()
	h.left, h.bytes, h.top = h.left[:0], 0, 0
}
