package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// inputs takes the inputs of a lease from their delivery to their acknowledgement. It is the same in both delivery modes. What differs is in
// its policies.
type inputs struct {
	o      *Options
	server leaseServer
	store  resultStore
	busy   *atomic.Bool // set while a delivery is taken, so that no message is requested; see stall.Detector.Saw
	log    *slog.Logger

	pulls pullPolicy
	queue queue
	blame blame
	ack   acknowledger
}

// pullPolicy is the policy by which a lease pulls. partition implements it for exclusive delivery, and source for shared delivery.
type pullPolicy interface {
	// began is called at the start of a pull, and over at its end.
	began(ctx, drainCtx context.Context, p leasePull) (over func())

	// arrived takes a delivery. Its error ends the pull.
	arrived(ctx, drainCtx context.Context, d *inflight.Delivery) error

	// idle is called if no message has arrived within the request's idle time. Its error ends the pull.
	idle(ctx, drainCtx context.Context) error
}

// queue takes the inputs that must be computed.
type queue interface {
	// Hold waits for the memory of a delivery. It returns false if ctx ends first.
	Hold(ctx context.Context, d *inflight.Delivery) bool

	// Put waits for space, and takes over a delivery that holds memory. It returns false if ctx ends first.
	Put(ctx context.Context, d inflight.Delivery) bool
}

// plainQueue implements queue.
type plainQueue struct {
	o *Options
	*inflight.Queue
}

func (q plainQueue) Hold(ctx context.Context, d *inflight.Delivery) bool {
	return q.o.Pool.Hold(ctx, q.o.Share, d)
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

// blame is the policy that keeps a payload from killing one worker after another. countedDeliveries implements it for shared delivery, and
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

// pull receives deliveries until ctx is done, the pull fails, or its policy ends it. It returns the reason, which is never nil.
func (i *inputs) pull(ctx, drainCtx context.Context) error {
	p, err := i.server.pull()
	if err != nil {
		return err
	}
	defer i.pulls.began(ctx, drainCtx, p)()
	var d inflight.Delivery // reused for all deliveries, because it escapes to the heap
	for ctx.Err() == nil {
		msg, err := p.next(ctx)
		switch {
		case err == nil:
			err = i.receive(ctx, drainCtx, msg, &d)
		case errors.Is(err, pull.ErrIdle):
			err = i.pulls.idle(ctx, drainCtx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return ctx.Err()
}

// receive passes a message to the policy, and stores its delivery in d.
func (i *inputs) receive(ctx, drainCtx context.Context, msg inflight.Incoming, d *inflight.Delivery) (err error) {
	if *d, err = inflight.NewDelivery(msg, time.Now()); err != nil {
		i.log.Error("message ignored", "error", err)
		return nil
	}
	i.busy.Store(true)
	defer i.busy.Store(false)
	if d.NumDelivered > 1 {
		i.o.Observer.Redelivered()
	}
	return i.pulls.arrived(ctx, drainCtx, d)
}

// take records a delivery, and passes it on if its input is new. An error ends the lease.
func (i *inputs) take(ctx, drainCtx context.Context, d *inflight.Delivery) (verdict, error) {
	v := i.ack.take(d)
	switch v {
	case newInput:
		return v, i.passOn(ctx, drainCtx, d)
	case knownInput:
		i.ack.again(drainCtx, d)
	}
	return v, nil
}

// passOn queues a new input, unless it needs no result or must not be computed. An error ends the lease.
func (i *inputs) passOn(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	if ctx.Err() != nil || !i.queue.Hold(ctx, d) {
		i.ack.leave(*d)
		return ctx.Err()
	}
	switch known, err := i.store.Known(drainCtx, d); {
	case err != nil:
		i.o.Pool.Release(d)
		return err
	case known:
		i.store.AlreadyStored(d)
		return i.skip(drainCtx, d)
	case pull.IsDeleteMarker(d.Msg.Headers(), d.Msg.Data()):
		return i.skip(drainCtx, d)
	case i.isTooLarge(len(d.Msg.Data())):
		return i.ack.giveUp(ctx, drainCtx, *d, results.TooLarge, results.ErrExceedsBatch(len(d.Msg.Data()), i.o.Pool.Split.MaxRecord))
	}
	i.o.Pool.Unpack(d)
	if why, cause := i.blame.assess(d); cause != nil {
		return i.ack.giveUp(ctx, drainCtx, *d, why, cause)
	}
	if !i.queue.Put(ctx, *d) {
		i.ack.leave(*d)
		return ctx.Err()
	}
	return nil
}

// isTooLarge reports whether no batch has space for a payload of the given bytes.
func (i *inputs) isTooLarge(bytes int) bool {
	return bytes > i.o.Pool.Split.MaxRecord && !i.o.Pool.Splits()
}

// skip acknowledges an input that needs no result, and releases its memory.
func (i *inputs) skip(drainCtx context.Context, d *inflight.Delivery) error {
	defer i.o.Pool.Release(d)
	return i.ack.done(drainCtx, d)
}

// Encode implements inflight.Owner.
func (i *inputs) Encode(g *inflight.Batch, completed *streams.Batch) {
	s := i.o.Devices.take()
	defer i.o.Devices.put(s)
	i.o.Results.Encode(g, completed, s)
}

// finish stores the results of a batch that has left the device, and acknowledges its inputs.
func (i *inputs) finish(ctx context.Context, g *inflight.Batch, s *results.Buffers) error {
	pipe := g.Pipe
	start := pipe.Now()
	err := i.store.Store(ctx, g, s, i.ack)
	published := pipe.Now() - s.Settling
	if err == nil {
		err = i.ack.flush(ctx, g)
	}
	g.Record.Publish = streams.Span{Start: start, End: published}
	g.Record.Settle = streams.Span{Start: published, End: pipe.Now()}
	return err
}

// send sends an acknowledgement. If the worker confirms acknowledgements, send waits until the server has processed it or ctx ends. If
// the acknowledgement is lost, the server redelivers the inputs, and their second results are dropped as duplicates.
func (i *inputs) send(ctx context.Context, token pull.AckToken, sequence uint64) {
	if i.o.Confirm && ctx.Err() == nil {
		i.sent(sequence, confirm(ctx, token))
	} else {
		i.sent(sequence, token.Ack())
	}
}

// sent logs the error of an acknowledgement that was sent.
func (i *inputs) sent(sequence uint64, err error) {
	if err != nil {
		i.log.Warn("an acknowledgement was not confirmed; if it is lost, its inputs are delivered again, and their results are dropped as duplicates",
			"sequence", sequence, "error", err)
	}
}

// confirm sends an acknowledgement, and waits until the server has processed it.
func confirm(ctx context.Context, token pull.AckToken) error {
	ctx, cancel := context.WithTimeout(ctx, pull.ConfirmTimeout)
	defer cancel()
	return token.DoubleAck(ctx)
}

// consumerPull implements leasePull with a real server.
type consumerPull struct{ *pull.Pull }

func (p consumerPull) next(ctx context.Context) (inflight.Incoming, error) {
	m, err := p.Next(ctx)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p consumerPull) rest(yield func(inflight.Incoming) bool) {
	for m := range p.Rest() {
		if !yield(m) {
			return
		}
	}
}

func (p consumerPull) leave(ctx context.Context, turn uint64) {
	defer p.Stop()
	for m := range p.Rest() {
		if m.Turn() > turn {
			_, _ = p.Claim(ctx, m) // if it fails, the next owner waits until the pin expires
			return
		}
	}
}
