package partitioned

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
)

// endTimeout bounds how long giving the partition up may take when the time for draining is over.
const endTimeout = time.Second

// end gives the partition up. What was not finished is left to the next lease. If a kernel lost the device, the annotations
// stay as they are: they say what it was lost with. Any other loss leaves the owner's, so that the next one is cautious, but
// says nothing about the payload that was alone.
func (l *lease) end(drainCtx context.Context) {
	l.host.ended()
	if !l.begun && l.reader.pinned() == "" {
		return // the server has never chosen this worker
	}
	changes := map[string]string{annotationOwner: "", annotationAlone: "", annotationBeside: "", annotationFault: ""}
	if l.batches.deviceFailed() != nil {
		delete(changes, annotationOwner)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(drainCtx), endTimeout)
	defer cancel()
	// The server learns of the end of the pull over one connection, and of what follows over another. It must not be reset and
	// deliver to a client that has left.
	err := l.server.flush(ctx)
	if last, _, _ := l.acks.latest(); err == nil && last != nil {
		// The server processes acknowledgements asynchronously. One that it has not processed when the consumer is reset would
		// be lost.
		err = l.host.confirm(ctx, last)
	}
	if err == nil && l.begun && !errors.Is(l.batches.deviceFailed(), device.ErrKernelFault) {
		err = l.notes.annotate(ctx, changes)
	}
	if errors.Is(err, errPinLost) {
		return // another worker has the partition
	}
	if err == nil {
		err = l.handOver(ctx)
	}
	if err != nil {
		l.log.Info("could not give the partition up; the next owner waits until the server lets go of it", "error", err)
	}
}

// handOver lets another worker have the partition at once, with what this one has not acknowledged. It does nothing if
// another has it already.
func (l *lease) handOver(ctx context.Context) error {
	info, err := l.server.info(ctx)
	if err != nil || !pinnedTo(info, l.reader.pinned()) {
		return err
	}
	if info.NumAckPending > 0 {
		if err := l.notes.noteDelivered(ctx, info); err != nil {
			return err
		}
		if err := l.server.reset(ctx, info); err != nil {
			return err
		}
	}
	return l.server.unpin(ctx)
}

// pinnedTo reports whether the server delivers to the client with that pin.
func pinnedTo(info *jetstream.ConsumerInfo, pin string) bool {
	return pin != "" &&
		slices.ContainsFunc(info.PriorityGroups, func(g jetstream.PriorityGroupState) bool { return g.PinnedClientID == pin })
}
