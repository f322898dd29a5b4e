package partitioned

import (
	"cmp"
	"context"
	"sync"
)

// lease is a period in which this worker owns a partition. At its start it reads from the stream what the consumer has delivered and
// nobody has acknowledged. When it ends, every input that it took is either acknowledged or left to the next lease.
//
// Three goroutines do the work: the reader takes deliveries, the submitter computes them in batches, and the settler stores the
// results and acknowledges the inputs. Their shared state is in leaseState. They use three interfaces to the outside:
// leaseServer, leaseHost and leaseBatches. The model test runs leases with simulations of all three.
type lease struct {
	*leaseState
	batches leaseBatches
	reader  *reader
}

func newLease(l *leaseState, batches leaseBatches) *lease {
	return &lease{leaseState: l, batches: batches, reader: newReader(l, batches)}
}

// run holds the lease until ctx is done or the lease fails, and returns the reason for a failure. It waits for the batches in
// flight until drainCtx ends.
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
		l.host.release(&d) // it is redelivered
	}
	l.acks.dropReceipts()
	l.end(drainCtx)
	return cmp.Or(context.Cause(reading), err)
}
