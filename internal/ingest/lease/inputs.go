package lease

import (
	"context"
	"log/slog"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// inputs has what a lease does with its inputs, from their delivery to their acknowledgement. It is the same in both delivery modes.
// What differs is in two policies, acknowledger and blame.
type inputs struct {
	o      *Options
	server leaseServer
	store  resultStore
	ack    acknowledger
	blame  blame
	queue  queue
	log    *slog.Logger
}

// queue takes the inputs that must be computed.
type queue interface {
	// Hold waits for the memory of a delivery. It returns false if ctx ends first.
	Hold(ctx context.Context, d *inflight.Delivery) bool

	// Put waits for space, and takes over a delivery that holds memory. It returns false if ctx ends first.
	Put(ctx context.Context, d inflight.Delivery) bool
}

// acknowledger is the policy by which a lease acknowledges inputs. each acknowledges every input alone, and upTo acknowledges all inputs
// up to the first one that isn't done.
type acknowledger interface {
	results.Sink // records which deliveries of a batch are done

	// take records a delivery.
	take(d *inflight.Delivery) verdict

	// again repeats the acknowledgement of an input that take knows, if it was acknowledged.
	again(ctx context.Context, d *inflight.Delivery)

	// done acknowledges an input outside any batch. Its result or dead letter is stored, or it needs none.
	done(ctx context.Context, d *inflight.Delivery) error

	// giveUp takes over an input and its memory, and acknowledges it once its dead letter is stored. It may wait for earlier inputs
	// until ctx ends. An error ends the lease.
	giveUp(ctx, drainCtx context.Context, d inflight.Delivery, why results.Reason, cause error) error

	// flush acknowledges those inputs of a batch that are done and not acknowledged yet.
	flush(ctx context.Context, g *inflight.Batch) error

	// leave takes over an input that the lease doesn't compute, because it ends.
	leave(d inflight.Delivery)
}

// blame is the policy that keeps a payload from killing one worker after another. deliveryCounts implements it for shared delivery, and
// precaution for exclusive delivery.
type blame interface {
	// assess sets the quarantine level of an input. If the input must not be computed, assess returns the reason and the cause of its
	// dead letter.
	assess(d *inflight.Delivery) (why results.Reason, cause error)
}

// verdict is the result of take for a delivery.
type verdict uint8

// The verdicts.
const (
	newInput   verdict = iota // the input is new and must be processed
	heldInput                 // the lease has the input already, and needs no other delivery of it
	knownInput                // the server has redelivered an input that is in flight or done
	gap                       // earlier deliveries are missing; only with exclusive delivery
)

func (v verdict) String() string { return [...]string{"new", "held", "known", "gap"}[v] }

// take records a delivery, and passes it on if its input is new. An error ends the lease.
func (l *inputs) take(ctx, drainCtx context.Context, d *inflight.Delivery) (verdict, error) {
	v := l.ack.take(d)
	switch v {
	case newInput:
		return v, l.passOn(ctx, drainCtx, d)
	case knownInput:
		l.ack.again(drainCtx, d)
	}
	return v, nil
}

// passOn queues a new input, unless it needs no result or must not be computed. An error ends the lease.
func (l *inputs) passOn(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	if ctx.Err() != nil || !l.queue.Hold(ctx, d) {
		l.ack.leave(*d)
		return ctx.Err()
	}
	switch known, err := l.store.Known(drainCtx, d); {
	case err != nil:
		l.o.Pool.Release(d)
		return err
	case known:
		l.store.AlreadyStored(d)
		return l.skip(drainCtx, d)
	case pull.IsDeleteMarker(d.Msg.Headers(), d.Msg.Data()):
		return l.skip(drainCtx, d)
	case l.isTooLarge(len(d.Msg.Data())):
		return l.ack.giveUp(ctx, drainCtx, *d, results.TooLarge, results.ErrExceedsBatch(len(d.Msg.Data()), l.o.Pool.Split.MaxRecord))
	}
	l.o.Pool.Unpack(d)
	if why, cause := l.blame.assess(d); cause != nil {
		return l.ack.giveUp(ctx, drainCtx, *d, why, cause)
	}
	if !l.queue.Put(ctx, *d) {
		l.ack.leave(*d)
		return ctx.Err()
	}
	return nil
}

// isTooLarge reports whether no batch has space for a payload of the given bytes.
func (l *inputs) isTooLarge(bytes int) bool {
	return bytes > l.o.Pool.Split.MaxRecord && !l.o.Pool.Splits()
}

// skip acknowledges an input that needs no result, and releases its memory.
func (l *inputs) skip(drainCtx context.Context, d *inflight.Delivery) error {
	defer l.o.Pool.Release(d)
	return l.ack.done(drainCtx, d)
}

// finish stores the results of a batch that has left the device, and acknowledges its inputs. It records the stages since start on the
// clock of pipe.
func (l *inputs) finish(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, s *results.Buffers, start time.Duration) error {
	err := l.store.Store(ctx, g, s, l.ack)
	published := pipe.Now() - s.Settling
	if err == nil {
		err = l.ack.flush(ctx, g)
	}
	g.Record.Publish = streams.Span{Start: start, End: published}
	g.Record.Settle = streams.Span{Start: published, End: pipe.Now()}
	return err
}

// send sends an acknowledgement. If the worker confirms acknowledgements, send waits until the server has processed it or ctx ends. If
// the acknowledgement is lost, the server redelivers the inputs, and their second results are dropped as duplicates.
func (l *inputs) send(ctx context.Context, token pull.AckToken, sequence uint64) {
	if l.o.Confirm && ctx.Err() == nil {
		l.sent(sequence, confirm(ctx, token))
	} else {
		l.sent(sequence, token.Ack())
	}
}

// sent logs the error of an acknowledgement that was sent.
func (l *inputs) sent(sequence uint64, err error) {
	if err != nil {
		l.log.Warn("an acknowledgement was not confirmed; if it is lost, its inputs are delivered again, and their results are dropped as duplicates",
			"sequence", sequence, "error", err)
	}
}

// confirm sends an acknowledgement, and waits until the server has processed it.
func confirm(ctx context.Context, token pull.AckToken) error {
	ctx, cancel := context.WithTimeout(ctx, pull.ConfirmTimeout)
	defer cancel()
	return token.DoubleAck(ctx)
}
