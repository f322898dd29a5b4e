package ingest

import (
	"context"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
)

// partitionHost is the leaseHost of one partition of a worker.
type partitionHost struct {
	e         *exclusive
	w         *Worker
	partition int
}

func (h *partitionHost) hold(ctx context.Context, d *inflight.Delivery) bool {
	return h.w.pool.Hold(ctx, d)
}
func (h *partitionHost) release(d *inflight.Delivery) { h.w.pool.Release(d) }

func (h *partitionHost) keepReceipts(n int) {
	for range n {
		h.w.pool.HoldReceipt()
	}
	h.w.pool.ReleaseReceipts(max(-n, 0))
}

func (h *partitionHost) publishDeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error {
	if err := h.w.results.PublishDeadLetter(ctx, d, why, cause); err != nil {
		return err
	}
	h.w.results.ReportDeadLetter(d, why, cause)
	return nil
}

func (h *partitionHost) highestStored(ctx context.Context, oldest time.Time) (uint64, error) {
	return h.w.results.HighestInput(ctx, oldest)
}

func (h *partitionHost) upgrading() bool { return h.w.results.Upgrading() }

func (h *partitionHost) acknowledge(ctx context.Context, msg pull.Receipt) error {
	return h.w.acknowledgeAll(ctx, msg)
}

func (h *partitionHost) confirm(ctx context.Context, msg pull.Receipt) error {
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
