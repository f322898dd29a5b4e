package lease

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
	// hold waits for the memory of a delivery and takes it. It reports false if ctx ends first. release releases the
	// memory.
	hold(ctx context.Context, d *inflight.Delivery) bool
	release(d *inflight.Delivery)

	// splits reports whether messages may be frames or compressed. unpack starts to unpack such a message and doesn't
	// wait.
	splits() bool
	unpack(d *inflight.Delivery)

	// keepReceipts counts the memory of n more receipts. A negative n releases memory.
	keepReceipts(n int)

	// openCommits takes over the partition's commit markers. It returns nil if the result stream accepts no commit
	// markers. The host sets the partition's number and owner in p.
	openCommits(ctx context.Context, p results.Partition) (leaseCommits, error)

	// alreadyStored reports to the observers that an earlier lease has stored the result or the dead letter of d.
	alreadyStored(d *inflight.Delivery)

	// publishDeadLetter publishes a dead letter and waits until it is stored.
	publishDeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error

	// acknowledge acknowledges an input and all inputs before it. confirm also waits until the server has processed the
	// acknowledgement.
	acknowledge(ctx context.Context, msg pull.AckToken) error
	confirm(ctx context.Context, msg pull.AckToken) error

	// These methods report events of the lease. handing reports whether the reader is busy with a delivery. pending
	// reports the consumer's number of undelivered messages.
	began()
	ended()
	handing(busy bool)
	pending(messages uint64)
	redelivered()

	// earlierFault reports an operator's fault that an earlier owner of the partition recorded.
	earlierFault(inflight.OperatorFault)
}

// leaseCommits tracks the results and dead letters that a partition's leases store exactly once. *results.Commits
// implements it.
type leaseCommits interface {
	// Found returns the position up to which earlier leases have stored all results. ok is false if the position isn't
	// known.
	Found() (p commit.Position, ok bool)

	// Beyond returns the last input for which earlier leases may have stored a message.
	Beyond() uint64

	// Settled reports whether an earlier lease has stored the result or the dead letter of an input. The reader calls
	// it for every input, in stream order.
	Settled(ctx context.Context, d *inflight.Delivery) (bool, error)

	// Keep stores the last marker again before the stream removes it because of its age. The reader calls it at
	// intervals while no delivery arrives.
	Keep(ctx context.Context) error
}

// partitionHost implements leaseHost for one lease.
type partitionHost struct {
	o         *Options
	watch     *watch
	partition int
	commits   *results.Commits // see leaseHost.openCommits
}

func (h *partitionHost) hold(ctx context.Context, d *inflight.Delivery) bool {
	return h.o.Pool.Hold(ctx, d)
}

func (h *partitionHost) release(d *inflight.Delivery) { h.o.Pool.Release(d) }

func (h *partitionHost) splits() bool { return h.o.Pool.Splits() }

func (h *partitionHost) unpack(d *inflight.Delivery) { h.o.Pool.Unpack(d) }

func (h *partitionHost) keepReceipts(n int) { h.o.Pool.KeepReceipts(n) }

func (h *partitionHost) openCommits(ctx context.Context, p results.Partition) (leaseCommits, error) {
	p.Number, p.Owner = h.partition, nuid.Next()
	c, err := results.OpenCommits(ctx, h.o.Results, p)
	if c == nil || err != nil {
		return nil, err
	}
	h.commits = c
	return c, nil
}

func (h *partitionHost) alreadyStored(d *inflight.Delivery) { h.o.Results.AlreadyStored(d) }

func (h *partitionHost) publishDeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error {
	publish := h.o.Results.PublishDeadLetter
	if c := h.commits; c != nil {
		publish = func(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error {
			return c.PublishDeadLetter(ctx, d, why, cause)
		}
	}
	if err := publish(ctx, d, why, cause); err != nil {
		return err
	}
	h.o.Results.ReportDeadLetter(d, why, cause)
	return nil
}

func (h *partitionHost) acknowledge(ctx context.Context, msg pull.AckToken) error {
	if !h.o.Confirm || ctx.Err() != nil {
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
func (h *partitionHost) redelivered()            { h.o.Observer.Redelivered() }

func (h *partitionHost) earlierFault(f inflight.OperatorFault) { h.o.Observer.OperatorFault(f) }
