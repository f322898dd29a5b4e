package partitioned

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// Why a lease ends and another has to begin.
var (
	errGap        = errors.New("there are deliveries that went elsewhere or got lost")
	errPinLost    = errors.New("the server gave the partition to another worker meanwhile")
	errOverridden = errors.New("an acknowledgement of an earlier lease came late, and the server takes none below it")
)

// lease is one stretch of time in which this worker has a partition to itself. It begins by making sure that the server
// delivers from the acknowledgement floor on, in order. When it ends, every input that it took is either acknowledged, or
// left to the next lease, which gets it again.
//
// A lease reaches the rest of the world through three interfaces: server, host and batches. The model test runs it
// between all three. Start reading at run, then read, take and acknowledge.
type lease struct {
	id       string // this worker's name in annotations
	stream   string
	subjects []string // the consumer's filters, without the partition
	maxBytes int      // the largest payload that a batch takes
	mostRead int      // how many lost inputs are read at once; see fillMost
	server   leaseServer
	host     leaseHost
	batches  leaseBatches
	log      *slog.Logger

	// The reader's.
	pull       leasePull
	begun      bool            // the server has chosen this worker, and the consumer is annotated
	turn       uint64          // this worker's name for the turn in which the lease began; see pull.Message
	checkedAt  time.Time       // when the reader last asked for the consumer's state
	resent     uint64          // the stream sequence of the acknowledgement that was sent again because the server did not have it; 0 for none
	resentAt   time.Time       // when one was last sent again for a covered input that was redelivered
	accused    uint64          // stream sequence of the payload that was alone on the device as the last owner died; 0 for none
	before     uint64          // the highest sequence that may have been delivered before this lease
	doubtful   bool            // it may be higher: nobody has noted it
	lastNumber uint64          // of the last delivery that arrived
	out        *inflight.Queue // to the goroutine that fills batches

	comparing  bool                 // an owner died while it compared a payload with others
	order      chan *inflight.Batch // submitted batches, in order
	failed     chan error           // why the lease must end; room for one
	annotating chan struct{}        // holds a token while the consumer's metadata is read and changed

	mu          sync.Mutex
	floor       partition.Floor
	caution     partition.Caution
	quarantined int                     // how many more payloads may be what the last owner died of
	taken       uint64                  // number of the last delivery
	ackedUpTo   uint64                  // stream sequence
	lastAcked   pull.Receipt            // what the last acknowledgement named; nil before the first
	receipts    map[uint64]pull.Receipt // inputs with dead letters that the next acknowledgement may name
	progressed  bool                    // something was acknowledged
}

// leaseHost is what a lease needs of its worker beside the server and the device.
type leaseHost interface {
	// hold waits until there is memory for a delivery. It reports false when ctx ended before.
	hold(ctx context.Context, d *inflight.Delivery) bool
	release(d *inflight.Delivery)

	// keepReceipts accounts for the memory of n more receipts; n may be negative.
	keepReceipts(n int)

	// publishDeadLetter returns once a dead letter is stored.
	publishDeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error

	// highestStored returns the highest sequence with a result, of inputs that were stored from oldest on.
	highestStored(ctx context.Context, oldest time.Time) (uint64, error)

	// upgrading reports whether workers of an earlier version may still publish.
	upgrading() bool

	// acknowledge acknowledges an input and all before it. confirm also waits until the server has processed that.
	acknowledge(ctx context.Context, msg pull.Receipt) error
	confirm(ctx context.Context, msg pull.Receipt) error

	// Events: the lease has begun or ended, waits with a delivery that it can't pass on, got a delivery with so many
	// messages behind it, or got one again.
	began()
	ended()
	handing(busy bool)
	pending(messages uint64)
	redelivered()
}

// leaseBatches packs a lease's inputs into batches, computes them, and publishes their results.
type leaseBatches interface {
	// await waits for the first payload of the next batch. It reports false when there are no more.
	await() bool

	// pack fills the next batch. bound returns how many of most payloads it may have. The batch is nil when the lease ends.
	pack(ctx context.Context, bound func(most int) int) (*leaseBatch, error)

	// submit hands a batch to the device. Its group's ended is called when it has left the device.
	submit(b *leaseBatch)
	discard(b *leaseBatch)

	// share waits until no payload is alone on the device, isolate until nothing is on it. Both return what undoes them.
	share() (leave func())
	isolate() (leave func())

	// probe has the device compute payloads of known content.
	probe(ctx context.Context) error

	// rescue computes what it can of a batch that failed. publish stores the results of a batch. Both call lease.settled for
	// what is stored, and return nil when everything is.
	rescue(ctx context.Context, g *inflight.Batch) error
	publish(ctx context.Context, g *inflight.Batch) error

	// report tells observers of a batch, and recycle takes its group back.
	report(g *inflight.Batch)
	recycle(g *inflight.Batch)

	now() time.Duration  // the clock of stage timestamps
	largest() int        // payloads in a batch without reason for caution
	deviceFailed() error // why the device is lost; nil if it is not
	stopPacking()        // releases what await found and no batch took
	stopPublishing()
}

// leaseBatch is a batch that is packed and not submitted.
type leaseBatch struct {
	group *inflight.Batch
	batch *streams.Batch
	why   streams.CloseReason
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
		if err := l.fillBatches(reading); err != nil {
			l.fail(err)
		}
	})
	working.Go(func() { l.settleInOrder(drainCtx) })
	err := l.read(reading, drainCtx)
	stop(err)
	working.Wait()
	for d, ok := l.out.Get(); ok; d, ok = l.out.Get() {
		l.host.release(&d) // it comes again
	}
	l.host.keepReceipts(-len(l.receipts))
	l.end(drainCtx)
	return cmp.Or(context.Cause(reading), err)
}

// newLease makes a lease. The caller sets subjects, maxBytes, order (with room for every group) and batches before run.
func newLease(id, stream string, server leaseServer, host leaseHost, log *slog.Logger) *lease {
	return &lease{
		id: id, stream: stream, server: server, host: host, log: log, mostRead: fillMost, out: inflight.NewQueue(inflight.QueueMost),
		failed: make(chan error, 1), annotating: make(chan struct{}, 1), receipts: map[uint64]pull.Receipt{},
	}
}

// fail ends the lease; the first reason counts.
func (l *lease) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}
