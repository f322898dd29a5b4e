package partitioned

import (
	"cmp"
	"context"
	"sync"
)

// lease is one stretch of time in which this worker has a partition to itself. It begins by making sure that the server
// delivers from the acknowledgement floor on, in order. When it ends, every input that it took is either acknowledged, or
// left to the next lease, which gets it again.
//
// Three goroutines do the work: the reader takes deliveries, the submitter has them computed in batches, and the settler stores
// the results and acknowledges the inputs. What they share is in leaseState. They reach the rest of the world through three
// interfaces: leaseServer, leaseHost and leaseBatches. The model test runs leases between all three.
type lease struct {
	*leaseState
	batches leaseBatches
	reader  *reader
}

func newLease(l *leaseState, batches leaseBatches) *lease {
	return &lease{leaseState: l, batches: batches, reader: newReader(l, batches)}
}

// run holds the lease until ctx is done, or it cannot go on; then it returns why. It waits, until drainCtx ends, for the
// batches in flight.
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
		l.host.release(&d) // it comes again
	}
	l.acks.dropReceipts()
	l.end(drainCtx)
	return cmp.Or(context.Cause(reading), err)
}
