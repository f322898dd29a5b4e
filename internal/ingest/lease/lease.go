package lease

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
)

// lease is a period during which this worker owns a partition. A lease first reads the delivered but unacknowledged
// inputs from the stream. When it ends, each of its inputs is either acknowledged or left to the next lease.
//
// A lease has three goroutines. The reader receives deliveries, the submitter submits them in batches, and the storer
// stores results and acknowledges inputs. leaseState is their shared state. The goroutines access everything else
// through the interfaces leaseServer, leaseDevice, resultStore and leaseOwner, which the model test simulates.
type lease struct {
	*leaseState
	partition *partition
}

// newLease returns a lease with the given settings and seams; see newLeaseState.
func newLease(with leaseState) *lease {
	l := newLeaseState(with)
	p := newPartition(l)
	l.pulls = p
	return &lease{leaseState: l, partition: p}
}

// run holds the lease until ctx is done or the lease fails, and returns the reason, which is never nil. It waits for
// the batches in flight until drainCtx ends.
func (l *lease) run(ctx, drainCtx context.Context) error {
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var working sync.WaitGroup
	working.Go(func() {
		select {
		case err := <-l.failed:
			stop(err)
		case <-reading.Done():
		}
	})
	working.Go(func() {
		defer l.order.close()
		if err := (&submitter{l.leaseState}).run(reading); err != nil {
			l.fail(err)
		}
	})
	working.Go(func() { (&storer{leaseState: l.leaseState}).run(drainCtx) })
	err := l.pull(reading, drainCtx)
	l.out.Close()
	stop(err)
	working.Wait()
	for d, ok := l.out.Get(); ok; d, ok = l.out.Get() {
		l.ack.leave(d)
	}
	l.acks.dropReceipts()
	l.end(drainCtx)
	return cmp.Or(context.Cause(reading), err)
}

const (
	// endTimeout is the maximum time to give up the partition.
	endTimeout = 5 * time.Second

	// endAfterDrain is the maximum time to give up the partition after drainCtx has ended.
	endAfterDrain = time.Second
)

// end gives up the partition, and leaves the unfinished inputs to the next lease. After a kernel fault, the annotations
// stay, because they name the payload that was on the device. After any other loss of the device, only the owner
// annotation stays. The next lease then limits its batches, but doesn't blame the payload that ran alone.
func (l *lease) end(drainCtx context.Context) {
	l.owner.ended()
	if !l.begun && l.partition.pinID() == "" {
		return // the server has never pinned this worker
	}
	changes := map[string]string{annotationOwner: "", annotationAlone: "", annotationBeside: ""}
	if l.caution.comparing {
		delete(changes, annotationBeside) // the payload isn't decided yet, or relax has removed the annotation
	}
	if l.device.lost() != nil {
		delete(changes, annotationOwner)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(drainCtx), endTimeout)
	defer cancel()
	defer context.AfterFunc(drainCtx, func() { time.AfterFunc(endAfterDrain, cancel) })()
	// The unsubscription of the pull and the following requests use different connections. The server must process the
	// unsubscription first. Otherwise it would redeliver to a client that has left.
	err := l.server.flush(ctx)
	if last, _, _ := l.acks.latest(); err == nil && last != nil {
		// The server processes acknowledgements asynchronously. Without this confirmation, the next owner could read
		// acknowledged inputs from the stream.
		err = confirm(ctx, last)
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

// annotateEnd annotates the end of the lease. It adds the operator that caused the loss of the device, if known. After
// a kernel fault, it doesn't apply changes.
func (l *lease) annotateEnd(ctx context.Context, changes map[string]string) error {
	f, known := l.device.fault()
	if known {
		if err := l.notes.noteFault(ctx, f); err != nil {
			return err
		}
	}
	if errors.Is(l.device.lost(), device.ErrKernelFault) {
		return nil
	}
	return l.notes.annotate(ctx, changes)
}

// handOver unpins this worker, so that another worker can take over its unacknowledged inputs at once. It does nothing
// if this worker isn't pinned.
func (l *lease) handOver(ctx context.Context) error {
	info, err := l.server.Info(ctx)
	if err != nil || !pinnedTo(info, l.partition.pinID()) {
		return err
	}
	if info.NumAckPending > 0 {
		if err := l.redeliver(ctx, info); err != nil {
			return err
		}
	}
	return l.server.unpin(ctx)
}

// redeliver requests a redelivery of the first unacknowledged input of a partition without an owner. The server pins
// the client that receives it, and that client reads the other inputs from the stream. Otherwise the server would pin
// no client until a new input arrives or AckWait ends. A client that is already pinned ignores the redelivery.
func (l *leaseState) redeliver(ctx context.Context, info *jetstream.ConsumerInfo) error {
	for raw, err := range l.stored.between(ctx, info.AckFloor.Stream, info.Delivered.Stream+1) {
		if err != nil {
			return err
		}
		return l.server.redeliver(ctx, raw.Sequence, info.Delivered.Consumer)
	}
	return nil
}
