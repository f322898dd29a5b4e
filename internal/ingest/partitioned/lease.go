package partitioned

import (
	"cmp"
	"context"
	"sync"
)

// lease is a period during which this worker owns a partition. A lease first reads the delivered but unacknowledged
// inputs from the stream. When it ends, each of its inputs is either acknowledged or left to the next lease.
//
// A lease has three goroutines. The reader receives deliveries, the submitter submits them in batches, and the settler
// stores results and acknowledges inputs. leaseState is their shared state. The goroutines access everything else
// through the interfaces leaseServer, leaseHost and leaseBatches, which the model test simulates.
type lease struct {
	*leaseState
	batches leaseBatches
	reader  *reader
}

func newLease(l *leaseState, batches leaseBatches) *lease {
	return &lease{leaseState: l, batches: batches, reader: newReader(l, batches)}
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
		defer close(l.order)
		if err := (&submitter{l.leaseState, l.batches}).run(reading); err != nil {
			l.fail(err)
		}
	})
	working.Go(func() { (&settler{l.leaseState, l.batches}).run(drainCtx) })
	err := l.reader.run(reading, drainCtx)
	stop(err)
	working.Wait()
	for d, ok := l.out.Get(); ok; d, ok = l.out.Get() {
		l.host.release(&d) // the server redelivers d
	}
	l.acks.dropReceipts()
	l.end(drainCtx)
	return cmp.Or(context.Cause(reading), err)
}
