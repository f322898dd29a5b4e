package ingest

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// partitionHost is the leaseHost of one partition of a worker.
type partitionHost struct {
	e         *exclusive
	w         *Worker
	partition int
}

func (h *partitionHost) hold(ctx context.Context, d *delivery) bool { return h.w.hold(ctx, d) }
func (h *partitionHost) release(d *delivery)                        { h.w.release(d) }

func (h *partitionHost) keepReceipts(n int) {
	if n > 0 {
		h.w.budget.force(receiptCost * int64(n))
	} else {
		h.w.budget.give(receiptCost * int64(-n))
	}
}

func (h *partitionHost) publishDeadLetter(ctx context.Context, d *delivery, why Reason, cause error) error {
	if err := h.w.storeDeadLetter(ctx, d, why, cause); err != nil {
		h.w.sayNotBuried(d, why, err)
		return err
	}
	h.w.sayBuried(d, why, cause)
	return nil
}

func (h *partitionHost) highestStored(ctx context.Context, oldest time.Time) (uint64, error) {
	return h.w.clearance.highest(ctx, oldest)
}

func (h *partitionHost) upgrading() bool { return h.w.clearance.upgrading.Load() }

func (h *partitionHost) acknowledge(ctx context.Context, msg jetstream.Msg) error {
	return h.w.acknowledgeAll(ctx, msg)
}

func (h *partitionHost) confirm(ctx context.Context, msg jetstream.Msg) error {
	return h.w.confirmAll(ctx, msg)
}

func (h *partitionHost) began() {
	h.e.members.Has(h.partition, true)
	h.e.custody.began(h.partition, time.Now())
}

func (h *partitionHost) ended()                  { h.e.members.Has(h.partition, false) }
func (h *partitionHost) handing(busy bool)       { h.e.handing[h.partition].Store(busy) }
func (h *partitionHost) pending(messages uint64) { h.e.backlog.heard(h.partition, messages) }
func (h *partitionHost) redelivered()            { h.w.observer.Redelivered() }
