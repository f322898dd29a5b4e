package lease

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
)

// partition pulls the inputs of a partition in order and without gaps, under this worker's pin. It is the pullPolicy of exclusive delivery. It
// reads inputs from the stream if they were delivered to an earlier owner or their delivery was lost.
type partition struct {
	*leaseState
	pulled leasePull     // nil before the pull
	pinned func() string // pinID; tests replace it
	turn   uint64        // turn in which the lease began; see pull.Message.Turn
	number uint64        // consumer sequence of the last delivery that arrived
	before uint64        // highest stream sequence that may have been delivered before this lease
}

func newPartition(l *leaseState) *partition {
	p := &partition{leaseState: l}
	p.pinned = p.pinID
	return p
}

// pinID returns this worker's pin, or an empty string if the worker isn't pinned.
func (p *partition) pinID() string {
	if p.pulled == nil {
		return ""
	}
	return p.pulled.Pin()
}

// pullFor is the lifetime of a pull request, and the interval at which keepTurn contacts the server.
const pullFor = time.Second

// began implements pullPolicy.
func (p *partition) began(ctx, drainCtx context.Context, pulled leasePull) (over func()) {
	p.pulled = pulled
	keeping, stop := context.WithCancel(ctx)
	go p.keepTurn(keeping)
	return func() {
		stop()
		pulled.leave(drainCtx, p.turn)
	}
}

// keepTurn renews this worker's pin every pullFor, because the reader makes no requests while the device is busy. It
// doesn't renew the pin while the server doesn't answer. The worker can't finish batches during that time, so another
// worker should own the partition.
func (p *partition) keepTurn(ctx context.Context) {
	for retry.Sleep(ctx, pullFor) {
		answered, cancel := context.WithTimeout(ctx, pullFor)
		err := p.server.flush(answered)
		cancel()
		if err == nil {
			err = p.pulled.Keep()
		}
		if err != nil {
			p.log.Debug("could not keep the partition", "error", err)
		}
	}
}

// arrived implements pullPolicy.
func (p *partition) arrived(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	d.Subject = inflight.PartitionSubject(d.Subject)
	if !p.begun {
		if err := p.begin(ctx, drainCtx, d); err != nil {
			return err
		}
	}
	switch {
	case d.Turn != p.turn:
		return errPinLost
	case d.ConsumerSequence <= p.number:
		return errReset
	}
	p.number = d.ConsumerSequence
	return p.enter(ctx, drainCtx, d)
}

// begin starts the lease after d, the first delivery under this worker's pin. It reads the consumer's state and
// annotates that the lease has begun. If the consumer made deliveries before d, take finds a gap and reads their inputs
// from the stream.
//
// The end of ctx interrupts begin only before the annotation. A lease that has begun only partly can't be given up, so
// its deliveries would wait for AckWait.
func (p *partition) begin(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	p.turn = d.Turn
	info, err := p.server.Info(drainCtx)
	if err != nil {
		return err
	}
	left := info.Config.Metadata
	// After a server crash or an administrator's reset, the consumer's state may lack deliveries. The annotation still
	// covers them.
	p.before = delivered(left)
	of := results.Partition{
		Floor: info.AckFloor.Stream, Delivered: max(info.Delivered.Stream, delivered(left)), Loose: left[annotationLoose] != "",
		IsStored: p.isStored,
	}
	if p.commits, err = p.openCommits(ctx, of); err != nil {
		return err
	}
	if p.commits != nil {
		p.store, p.acks.ordered = p.commits, true
	}
	p.describeCommits(ctx, info, &of)
	if err := p.caution.takeOver(drainCtx, info, p.pipe.BatchPayloads(), p.commits == nil); err != nil {
		return err
	}
	for _, f := range inflight.ParseFaults(info.Config.Metadata[inflight.FaultNote]) {
		p.o.Observer.OperatorFault(f)
	}
	p.owner.began()
	p.begun = true
	p.log.Debug("has the partition", "floor", info.AckFloor.Stream, "pin", p.pinID(), "first", d.ConsumerSequence)
	return nil
}

// describeCommits logs the position of the last commit marker if it differs from the acknowledgement floor.
func (p *partition) describeCommits(ctx context.Context, info *jetstream.ConsumerInfo, of *results.Partition) {
	if p.commits == nil {
		return
	}
	switch at, ok := p.commits.Found(); {
	case !ok && info.AckFloor.Consumer > 0:
		p.log.Warn("the result stream has no commit marker of this partition: exactly once is new here, or the result stream was purged or recreated. "+
			"The partition continues after the last acknowledged input; results that were purged are not made again", "acknowledged", info.AckFloor.Stream)
	case of.IsBeyond(ctx, p.commits):
		p.log.Warn("more inputs are acknowledged than the last commit marker covers: a worker without commit markers had the partition, or the "+
			"result stream has lost its last messages", "acknowledged", info.AckFloor.Stream, "committed", at.Sequence)
	case ok && at.Sequence > info.AckFloor.Stream:
		p.log.Info("inputs that have a result are acknowledged without being computed", "acknowledged", info.AckFloor.Stream, "committed", at.Sequence)
	}
}

// isStored reports whether the stream still has the partition's input with the given sequence. A delete marker isn't an
// input.
func (p *partition) isStored(ctx context.Context, sequence uint64) bool {
	for raw, err := range p.stored.between(ctx, sequence-1, sequence+1) {
		return err == nil && !pull.IsDeleteMarker(raw.Header, raw.Data)
	}
	return false
}

// enter takes a delivery. If earlier deliveries are missing, enter first reads their inputs from the stream.
func (p *partition) enter(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	if d.Sequence <= p.before {
		d.First, d.Cleared = false, time.Time{}
	}
	verdict, err := p.take(ctx, drainCtx, d)
	if verdict != gap {
		return err
	}
	info, err := p.server.Info(ctx)
	if err != nil {
		return err
	}
	if err := p.fill(ctx, drainCtx, info, d.ConsumerSequence); err != nil {
		return err
	}
	if verdict, err = p.take(ctx, drainCtx, d); verdict == gap {
		return errUnread
	}
	return err
}

// errUnread ends a lease that received an input but didn't find it in the stream. Either the input has been deleted, or
// the stream can't be read and earlier inputs may be missing.
var errUnread = errors.New("the stream does not have an input that was delivered")

// fill reads the inputs from the stream that the consumer has delivered and this lease doesn't have, and passes them
// on. info is the consumer's state. arrived is the consumer sequence of the last delivery that arrived. If this worker
// is no longer pinned, the inputs may belong to the next owner, and fill returns errPinLost.
func (p *partition) fill(ctx, drainCtx context.Context, info *jetstream.ConsumerInfo, arrived uint64) error {
	last := info.Delivered
	switch {
	case !pinnedTo(info, p.pinned()):
		return errPinLost
	case isOverAcknowledged(info):
		return p.repair(ctx, info)
	case last.Consumer < arrived:
		return errReset
	}
	from, number := p.acks.reached()
	begins, read := number == 0, 0
	for raw, err := range p.stored.between(ctx, from, last.Stream+1) {
		if err != nil {
			return err
		}
		d := p.stored.delivery(raw, p.acks.takeStored(raw.Sequence, last.Consumer))
		if err := p.passOn(ctx, drainCtx, &d); err != nil {
			return err
		}
		read++
	}
	p.acks.caughtUp(last)
	if read > 0 && !begins {
		p.log.Info("read inputs from the stream that were delivered and never came", "inputs", read, "after", from)
	}
	return nil
}

// idle implements pullPolicy. It compares the consumer's state with the lease, and repairs a difference if possible.
func (p *partition) idle(ctx, drainCtx context.Context) error {
	info, err := p.server.Info(ctx)
	if err != nil {
		return err
	}
	if err := p.keepMarkers(drainCtx); err != nil {
		return err
	}
	_, taken := p.acks.reached()
	switch {
	case !p.begun && pinOf(info) == "" && isOverAcknowledged(info):
		return p.repair(ctx, info)
	case !p.begun && info.NumAckPending > 0 && pinOf(info) == "":
		// The server has dropped the pin, so the partition's owner is gone.
		p.log.Info("taking over a partition whose owner is gone", "unacknowledged", info.NumAckPending)
		return p.redeliver(ctx, info)
	case !p.begun:
		return nil
	case pinnedTo(info, p.pinned()) && isOverAcknowledged(info):
		return p.repair(ctx, info)
	case info.Delivered.Consumer == taken:
		p.acks.repeatLast(drainCtx, info)
		return nil
	}
	return p.fill(ctx, drainCtx, info, taken) // missing deliveries would have arrived by now
}

// keepMarkers keeps the stream from removing the last commit marker because of its age.
func (p *partition) keepMarkers(ctx context.Context) error {
	if p.commits == nil {
		return nil // before the lease has begun, or without markers
	}
	return p.commits.Keep(ctx)
}
