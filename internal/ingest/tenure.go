package ingest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partition"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// Why a tenure ends and another has to begin.
var (
	errGap        = errors.New("there are deliveries that went elsewhere or got lost")
	errPinLost    = errors.New("the server gave the partition to another worker meanwhile")
	errOverridden = errors.New("an acknowledgement of an earlier tenure came late, and the server takes none below it")
)

// tenure is one stretch of time in which this worker has a partition to itself. It begins by making sure that the
// server delivers from the acknowledgement floor on, in order, and ends with everything that was taken either
// acknowledged, or left to the next tenure, which gets it again.
type tenure struct {
	e         *exclusive
	w         *Worker
	partition int
	nc        *nats.Conn // where its inputs come
	pipe      *streams.Pipeline
	log       *slog.Logger

	consumer jetstream.Consumer
	begun    bool      // the server has chosen this worker, and the consumer is marked
	looked   time.Time // when the consumer was last asked how it is
	repeated bool      // the last acknowledgement was said again since, as the server had not heard of it
	again    time.Time // when one was last said again for an input that came although it was covered
	pin      string    // the server's name for this worker's turn; empty until the first delivery
	turn     uint64    // this worker's name for it; see pull.Message
	pace     *inflight.Window
	order    chan *inflight.Batch        // submitted batches, in order
	failed   chan error                  // why the tenure must end; room for one
	dead     map[uint64]inflight.Receipt // inputs with dead letters, without payloads, that may be what the next acknowledgement names

	accused  uint64          // stream sequence of the payload that was alone on the device as the last owner died; 0 for none
	besides  bool            // an owner has died of a payload that it only compared another with
	out      *inflight.Queue // to who fills batches
	before   uint64          // the highest sequence that may have been delivered before this tenure
	doubtful bool            // it may be higher: nobody has noted it
	suspects int             // how many payloads more are suspects. Guarded by mu, as is what follows

	marking sync.Mutex // held while the consumer's metadata is read and changed, by who fills batches or who settles

	mu         sync.Mutex
	floor      partition.Floor
	caution    partition.Caution
	taken      uint64           // number of the last delivery
	ackedUpTo  uint64           // stream sequence
	lastAcked  inflight.Receipt // what the last acknowledgement named; nil before the first
	progressed bool             // something was acknowledged
}

// run holds the tenure until ctx is done, or it cannot go on; then it returns why. It waits, until hard ends, for what is
// in hand.
func (t *tenure) run(ctx, hard context.Context) error {
	t.failed, t.dead = make(chan error, 1), map[uint64]inflight.Receipt{}
	t.pace = inflight.NewOrderedWindow(t.e.under[t.pipe])
	var err error
	if t.consumer, err = t.e.js.Consumer(ctx, t.w.opts.Stream, topology.PartitionConsumer(t.w.opts.Consumer, t.partition)); err != nil {
		return err
	}
	t.order = make(chan *inflight.Batch, t.w.pool.Size())
	out := inflight.NewQueue(inflight.QueueMost)
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var working sync.WaitGroup
	working.Go(func() {
		select {
		case err := <-t.failed:
			stop(err)
		case <-reading.Done():
		}
	})
	working.Go(func() {
		defer close(t.order)
		if err := t.fillBatches(reading, out); err != nil {
			t.fail(err)
		}
	})
	working.Go(func() { t.settleInOrder(hard) })
	err = t.read(reading, hard, out)
	stop(err)
	working.Wait()
	for d, ok := out.Get(); ok; d, ok = out.Get() {
		t.w.pool.Release(&d) // it comes again
	}
	t.w.pool.ReleaseReceipts(len(t.dead))
	t.end(hard)
	return cmp.Or(context.Cause(reading), err)
}

// fail ends the tenure; the first reason counts.
func (t *tenure) fail(err error) {
	select {
	case t.failed <- err:
	default:
	}
}

// fillBatches packs and submits what comes until there is no more. With reason for caution there is one small batch at a
// time, and the next only when it has been acknowledged.
func (t *tenure) fillBatches(ctx context.Context, in *inflight.Queue) error {
	f := t.w.pool.NewBatcher(t.pipe, in, t.w.opts.Linger, t.pace, nil)
	defer f.Drop()
	for {
		first, ok := f.First()
		if !ok {
			return nil
		}
		if ctx.Err() != nil {
			t.w.pool.Release(&first)
			return nil
		}
		if err := t.probeBeforeAlone(ctx); err != nil {
			t.w.pool.Release(&first)
			return err
		}
		g, err := t.w.pool.Reserve(ctx, t.pipe)
		if err != nil {
			t.w.pool.Release(&first)
			return nil // the end of the tenure; what was read and not submitted comes again
		}
		b, err := t.w.pool.Begin(g, t.pipe)
		if err != nil {
			t.w.pool.Release(&first)
			return err
		}
		careful := t.careful(f)
		g.Pack(b, first)
		why := f.Fill(b, g)
		if careful {
			err = t.submitCarefully(ctx, b, g, why)
		} else {
			err = t.submitAmongOthers(b, g, why)
		}
		if err != nil {
			return err
		}
	}
}

// careful bounds the next batch, and says whether there is reason for it.
func (t *tenure) careful(f *inflight.Batcher) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.caution.Due(t.ackedUpTo)
	f.MaxRows = 0
	if due {
		f.MaxRows = t.caution.BatchPayloads(t.pipe.BatchPayloads())
	}
	return due
}
