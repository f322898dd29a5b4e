package partitioned

import (
	"context"
	"time"

	"github.com/nats-io/nuid"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
)

// leaseHost is the part of the worker that a lease needs, in addition to the server and the device.
type leaseHost interface {
	// hold waits until there is memory for a delivery. It reports false if ctx ends first.
	hold(ctx context.Context, d *inflight.Delivery) bool
	release(d *inflight.Delivery)

	// splits reports whether messages may be frames or compressed. unpack begins to unpack such a message.
	splits() bool
	unpack(d *inflight.Delivery)

	// keepReceipts accounts for the memory of n more receipts; n may be negative.
	keepReceipts(n int)

	// openCommits begins to store what the lease stores exactly once. It returns nil if the result stream takes no commit markers. The
	// host adds the partition's number and the owner.
	openCommits(ctx context.Context, p results.Partition) (leaseCommits, error)

	// alreadyStored reports an input whose result or dead letter an earlier lease has stored.
	alreadyStored(d *inflight.Delivery)

	// publishDeadLetter returns once a dead letter is stored, or with an error.
	publishDeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error

	// acknowledge acknowledges an input and all inputs before it. confirm also waits until the server has processed that.
	acknowledge(ctx context.Context, msg pull.AckToken) error
	confirm(ctx context.Context, msg pull.AckToken) error

	// Events: the lease has begun or ended, waits to pass on a delivery, received a delivery with that many messages pending, or
	// received a redelivery.
	began()
	ended()
	handing(busy bool)
	pending(messages uint64)
	redelivered()

	// earlierFault is called for each fault of an operator that earlier owners of the partition noted.
	earlierFault(inflight.OperatorFault)
}

// leaseCommits is what a lease stores exactly once. *results.Commits implements it.
type leaseCommits interface {
	// Found returns the position up to which earlier leases have stored everything. ok is false if that isn't known.
	Found() (p commit.Position, ok bool)

	// Beyond returns the last input for which earlier leases may have stored something.
	Beyond() uint64

	// Settled reports whether an earlier lease has stored the result or the dead letter of an input. It is called for all inputs in
	// their order.
	Settled(ctx context.Context, d *inflight.Delivery) (bool, error)

	// Keep keeps the stream from removing the last marker for its age. It is called at intervals while there is nothing to do.
	Keep(ctx context.Context) error
}

// partitionHost is the leaseHost of one lease of a worker's partition.
type partitionHost struct {
	s         *Settings
	watch     *watch
	partition int
	commits   *results.Commits // see leaseHost.openCommits
}

func (h *partitionHost) hold(ctx context.Context, d *inflight.Delivery) bool {
	return h.s.Pool.Hold(ctx, d)
}

func (h *partitionHost) release(d *inflight.Delivery) { h.s.Pool.Release(d) }

func (h *partitionHost) splits() bool { return h.s.Pool.Splits() }

func (h *partitionHost) unpack(d *inflight.Delivery) { h.s.Pool.Unpack(d) }

func (h *partitionHost) keepReceipts(n int) {
	for range n {
		h.s.Pool.HoldReceipt()
	}
	h.s.Pool.ReleaseReceipts(max(-n, 0))
}

func (h *partitionHost) openCommits(ctx context.Context, p results.Partition) (leaseCommits, error) {
	p.Number, p.Owner = h.partition, nuid.Next()
	c, err := results.OpenCommits(ctx, h.s.Results, p)
	if c == nil || err != nil {
		return nil, err
	}
	h.commits = c
	return c, nil
}

func (h *partitionHost) alreadyStored(d *inflight.Delivery) { h.s.Results.AlreadyStored(d) }

func (h *partitionHost) publishDeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error {
	publish := h.s.Results.PublishDeadLetter
	if c := h.commits; c != nil {
		publish = func(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error {
			return c.PublishDeadLetter(ctx, d, why, cause)
		}
	}
	if err := publish(ctx, d, why, cause); err != nil {
		return err
	}
	h.s.Results.ReportDeadLetter(d, why, cause)
	return nil
}

func (h *partitionHost) acknowledge(ctx context.Context, msg pull.AckToken) error {
	if !h.s.Confirm || ctx.Err() != nil {
		return msg.Ack()
	}
	return h.confirm(ctx, msg)
}

func (h *partitionHost) confirm(ctx context.Context, msg pull.AckToken) error {
	ctx, cancel := context.WithTimeout(ctx, pull.ConfirmTimeout)
	defer cancel()
	return msg.DoubleAck(ctx)
}

func (h *partitionHost) began() {
	h.watch.members.Has(h.partition, true)
	h.watch.custody.began(h.partition, time.Now())
}

func (h *partitionHost) ended()                  { h.watch.members.Has(h.partition, false) }
func (h *partitionHost) handing(busy bool)       { h.watch.handing[h.partition].Store(busy) }
func (h *partitionHost) pending(messages uint64) { h.watch.backlog.update(h.partition, messages) }
func (h *partitionHost) redelivered()            { h.s.Observer.Redelivered() }

func (h *partitionHost) earlierFault(f inflight.OperatorFault) { h.s.Observer.OperatorFault(f) }
