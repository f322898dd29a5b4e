package partitioned

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
)

const (
	// endTimeout bounds how long it takes to give up the partition.
	endTimeout = 5 * time.Second

	// endAfterDrain bounds it after the drain has timed out.
	endAfterDrain = time.Second
)

// end gives up the partition. The next lease gets the unfinished inputs. If a kernel lost the device, the annotations stay as
// they are, because they record which payload was on it. After any other loss, only the owner annotation stays. The next lease is
// then cautious, but doesn't blame the payload that was alone.
func (l *lease) end(drainCtx context.Context) {
	l.host.ended()
	if !l.begun && l.reader.pinned() == "" {
		return // the server has never chosen this worker
	}
	changes := map[string]string{annotationOwner: "", annotationAlone: "", annotationBeside: ""}
	if l.batches.deviceFailed() != nil {
		delete(changes, annotationOwner)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(drainCtx), endTimeout)
	defer cancel()
	defer context.AfterFunc(drainCtx, func() { time.AfterFunc(endAfterDrain, cancel) })()
	// The server learns of the end of the pull over one connection, and receives the following requests over another. It must not
	// redeliver to a client that has left.
	err := l.server.flush(ctx)
	if last, _, _ := l.acks.latest(); err == nil && last != nil {
		// The server processes acknowledgements asynchronously. The next owner would read from the stream what it has not
		// processed yet.
		err = l.host.confirm(ctx, last)
	}
	if err == nil && l.begun {
		err = l.annotateEnd(ctx, changes)
	}
	if errors.Is(err, errPinLost) {
		return // another worker owns the partition
	}
	if err == nil {
		err = l.handOver(ctx)
	}
	if err != nil {
		l.log.Info("could not give the partition up; the next owner waits until the server lets go of it", "error", err)
	}
}

// annotateEnd annotates how the lease ended. If a kernel lost the device, it only adds which operator is to blame, if that is known.
func (l *lease) annotateEnd(ctx context.Context, changes map[string]string) error {
	f, known := l.batches.deviceFault()
	if known {
		if err := l.notes.noteFault(ctx, f); err != nil {
			return err
		}
	}
	if errors.Is(l.batches.deviceFailed(), device.ErrKernelFault) {
		return nil
	}
	return l.notes.annotate(ctx, changes)
}

// handOver lets another worker take the partition at once, with this worker's unacknowledged inputs. It does nothing if another
// worker already has it.
func (l *lease) handOver(ctx context.Context) error {
	info, err := l.server.info(ctx)
	if err != nil || !pinnedTo(info, l.reader.pinned()) {
		return err
	}
	if info.NumAckPending > 0 {
		if err := l.redeliver(ctx, info); err != nil {
			return err
		}
	}
	return l.server.unpin(ctx)
}

// redeliver asks the server to redeliver the first unacknowledged input of a partition without an owner. The client that gets it is
// pinned, and reads the others from the stream. Otherwise no client would be pinned until a new input arrives or AckWait ends. If
// another client is pinned by now, it ignores the redelivery.
func (l *leaseState) redeliver(ctx context.Context, info *jetstream.ConsumerInfo) error {
	for raw, err := range l.stored.between(ctx, info.AckFloor.Stream, info.Delivered.Stream+1) {
		if err != nil {
			return err
		}
		return l.server.redeliver(ctx, raw.Sequence, info.Delivered.Consumer)
	}
	return nil
}

// pinnedTo reports whether the client with that pin is pinned.
func pinnedTo(info *jetstream.ConsumerInfo, pin string) bool {
	return pin != "" &&
		slices.ContainsFunc(info.PriorityGroups, func(g jetstream.PriorityGroupState) bool { return g.PinnedClientID == pin })
}
