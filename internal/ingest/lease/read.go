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
	"millrace/internal/record"
)

// This file receives a lease's deliveries (reader), decides which of them are new inputs (intake), and queues those for pack.go.

// pullFor is the lifetime of a pull request, and the interval at which keepTurn contacts the server.
const pullFor = time.Second

// reader receives a lease's deliveries in order and without gaps, and passes them to the submitter.
type reader struct {
	*leaseState
	intake  *intake
	checker *checker

	pull   leasePull
	turn   uint64 // turn in which the lease began; see pull.Message.Turn
	number uint64 // consumer sequence of the last delivery that arrived
}

func newReader(l *leaseState) *reader {
	r := &reader{leaseState: l}
	r.intake = &intake{leaseState: l, pinned: r.pinID}
	r.checker = &checker{leaseState: l, intake: r.intake}
	return r
}

// run receives deliveries and passes them on, until ctx is done or the lease fails. Then it closes out.
func (r *reader) run(ctx, drainCtx context.Context) error {
	defer r.out.Close()
	var err error
	if r.pull, err = r.server.pull(); err != nil {
		return err
	}
	defer func() { r.pull.leave(drainCtx, r.turn) }()
	keeping, over := context.WithCancel(ctx)
	defer over()
	go r.keepTurn(keeping)
	var d inflight.Delivery // reused for all deliveries, because it escapes to the heap
	for {
		if err := r.next(ctx, drainCtx, &d); err != nil {
			return err
		}
		if !r.begun {
			if err := r.begin(ctx, drainCtx, &d); err != nil {
				return err
			}
		}
		if err := r.take(ctx, drainCtx, &d); err != nil {
			return err
		}
	}
}

// keepTurn renews this worker's pin every pullFor, because the reader makes no requests while the device is busy. It
// doesn't renew the pin while the server doesn't answer. The worker can't finish batches during that time, so another
// worker should own the partition.
func (r *reader) keepTurn(ctx context.Context) {
	for retry.Sleep(ctx, pullFor) {
		answered, cancel := context.WithTimeout(ctx, pullFor)
		err := r.server.flush(answered)
		cancel()
		if err == nil {
			err = r.pull.Keep()
		}
		if err != nil {
			r.log.Debug("could not keep the partition", "error", err)
		}
	}
}

// next clears d, waits for a delivery, and stores it in d. While none arrives, next checks the consumer at intervals.
func (r *reader) next(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	*d = inflight.Delivery{}
	for {
		msg, err := r.pull.next(ctx)
		switch {
		case err == nil:
			if *d, err = inflight.NewDelivery(msg, time.Now()); err != nil {
				return err
			}
			d.Subject = inflight.PartitionSubject(msg.Subject())
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, pull.ErrIdle):
			if err := r.checker.check(ctx, drainCtx); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// begin starts the lease after d, the first delivery under this worker's pin. It reads the consumer's state and
// annotates that the lease has begun. If the consumer made deliveries before d, take finds a gap and reads their inputs
// from the stream.
//
// The end of ctx interrupts begin only before the annotation. A lease that has begun only partly can't be given up, so
// its deliveries would wait for AckWait.
func (r *reader) begin(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	r.turn = d.Turn
	info, err := r.server.Info(drainCtx)
	if err != nil {
		return err
	}
	left := info.Config.Metadata
	// After a server crash or an administrator's reset, the consumer's state may lack deliveries. The annotation still
	// covers them.
	r.intake.before = delivered(left)
	of := results.Partition{
		Floor: info.AckFloor.Stream, Delivered: max(info.Delivered.Stream, delivered(left)), Loose: left[annotationLoose] != "",
		IsStored: r.isStored,
	}
	if r.commits, err = r.openCommits(ctx, of); err != nil {
		return err
	}
	if r.commits != nil {
		r.store = r.commits
	}
	r.describeCommits(ctx, info, &of)
	if err := r.caution.takeOver(drainCtx, info, r.pipe.BatchPayloads(), r.commits == nil); err != nil {
		return err
	}
	for _, f := range inflight.ParseFaults(info.Config.Metadata[inflight.FaultNote]) {
		r.o.Observer.OperatorFault(f)
	}
	r.owner.began()
	r.begun = true
	r.log.Debug("has the partition", "floor", info.AckFloor.Stream, "pin", r.pinID(), "first", d.ConsumerSequence)
	return nil
}

// describeCommits logs the position of the last commit marker if it differs from the acknowledgement floor.
func (r *reader) describeCommits(ctx context.Context, info *jetstream.ConsumerInfo, of *results.Partition) {
	if r.commits == nil {
		return
	}
	switch at, ok := r.commits.Found(); {
	case !ok && info.AckFloor.Consumer > 0:
		r.log.Warn("the result stream has no commit marker of this partition: exactly once is new here, or the result stream was purged or recreated. "+
			"The partition continues after the last acknowledged input; results that were purged are not made again", "acknowledged", info.AckFloor.Stream)
	case of.IsBeyond(ctx, r.commits):
		r.log.Warn("more inputs are acknowledged than the last commit marker covers: a worker without commit markers had the partition, or the "+
			"result stream has lost its last messages", "acknowledged", info.AckFloor.Stream, "committed", at.Sequence)
	case ok && at.Sequence > info.AckFloor.Stream:
		r.log.Info("inputs that have a result are acknowledged without being computed", "acknowledged", info.AckFloor.Stream, "committed", at.Sequence)
	}
}

// isStored reports whether the stream still has the partition's input with the given sequence. A delete marker isn't an
// input.
func (r *reader) isStored(ctx context.Context, sequence uint64) bool {
	for raw, err := range r.stored.between(ctx, sequence-1, sequence+1) {
		return err == nil && !pull.IsDeleteMarker(raw.Header, raw.Data)
	}
	return false
}

// take records a delivery, and passes it on if it must be processed.
func (r *reader) take(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	r.owner.handing(true)
	defer r.owner.handing(false)
	switch {
	case d.Turn != r.turn:
		return errPinLost
	case d.ConsumerSequence <= r.number:
		return errReset
	}
	r.number = d.ConsumerSequence
	r.owner.pending(d.Pending)
	verdict, err := r.intake.enter(ctx, drainCtx, d)
	if err != nil || verdict != knownInput {
		return err
	}
	r.o.Observer.Redelivered()
	r.checker.acknowledgeAgain(drainCtx, d.Sequence)
	return nil
}

// pinID returns this worker's pin, or an empty string if the worker isn't pinID.
func (r *reader) pinID() string {
	if r.pull == nil {
		return ""
	}
	return r.pull.Pin()
}

// intake passes a lease's inputs to the submitter, in order. It reads inputs from the stream if they were delivered to
// an earlier owner or their delivery was lost. Only the reader uses it.
type intake struct {
	*leaseState
	before uint64        // highest stream sequence that may have been delivered before this lease
	pinned func() string // see reader.pinned
}

// enter records a delivery, and passes it on if its input is new. If earlier deliveries are missing, enter first reads
// their inputs from the stream.
func (k *intake) enter(ctx, drainCtx context.Context, d *inflight.Delivery) (verdict, error) {
	verdict, behind := k.acks.take(d)
	if verdict == gap {
		info, err := k.server.Info(ctx)
		if err != nil {
			return verdict, err
		}
		if err := k.fill(ctx, drainCtx, info, d.ConsumerSequence); err != nil {
			return verdict, err
		}
		verdict, behind = k.acks.take(d)
	}
	switch verdict {
	case newInput:
		return verdict, k.passOn(ctx, drainCtx, d, k.caution.condemns(d.Sequence, behind))
	case gap:
		return verdict, errUnread
	}
	return verdict, nil
}

// errUnread ends a lease that received an input but didn't find it in the stream. Either the input has been deleted, or
// the stream can't be read and earlier inputs may be missing.
var errUnread = errors.New("the stream does not have an input that was delivered")

// fill reads the inputs from the stream that the consumer has delivered and this lease doesn't have, and passes them
// on. info is the consumer's state. arrived is the consumer sequence of the last delivery that arrived. If this worker
// is no longer pinned, the inputs may belong to the next owner, and fill returns errPinLost.
func (k *intake) fill(ctx, drainCtx context.Context, info *jetstream.ConsumerInfo, arrived uint64) error {
	last := info.Delivered
	switch {
	case !pinnedTo(info, k.pinned()):
		return errPinLost
	case isOverAcknowledged(info):
		return k.repair(ctx, info)
	case last.Consumer < arrived:
		return errReset
	}
	from, number := k.acks.reached()
	begins, read := number == 0, 0
	for raw, err := range k.stored.between(ctx, from, last.Stream+1) {
		if err != nil {
			return err
		}
		number, behind := k.acks.takeStored(raw.Sequence, last.Consumer)
		d := k.stored.delivery(raw, number)
		if err := k.passOn(ctx, drainCtx, &d, k.caution.condemns(d.Sequence, behind)); err != nil {
			return err
		}
		read++
	}
	k.acks.caughtUp(last)
	if read > 0 && !begins {
		k.log.Info("read inputs from the stream that were delivered and never came", "inputs", read, "after", from)
	}
	return nil
}

// passOn passes a new input to the submitter. A condemned or oversized input becomes a dead letter instead, and a
// settled input is acknowledged. A condemned input with a stored result is passed on for the state, but without its records.
func (k *intake) passOn(ctx, drainCtx context.Context, d *inflight.Delivery, condemned bool) error {
	if !k.o.Pool.Hold(ctx, d) {
		return ctx.Err()
	}
	if !d.First || d.Sequence <= k.before {
		d.First, d.Cleared = false, time.Time{}
	}
	if settled, err := k.isSettled(drainCtx, d); err != nil || settled {
		k.o.Pool.Release(d)
		return err
	}
	k.o.Pool.Unpack(d)
	if f := d.Frame; f != nil && k.caution.suspects(d) {
		if f.Open(); f.Framed() && f.Records() > 0 {
			condemned = !k.caution.cut(f)
		}
	}
	if condemned && d.Done {
		excludeRecords(d.Frame)
		condemned = false
	}
	switch {
	case condemned:
		return k.publishDeadLetter(ctx, drainCtx, *d, results.DeviceFault, k.caution.cause())
	case k.isTooLarge(len(d.Msg.Data())):
		return k.publishDeadLetter(ctx, drainCtx, *d, results.TooLarge, results.ErrExceedsBatch(len(d.Msg.Data()), k.o.Pool.Split.MaxRecord))
	}
	if !k.out.Put(ctx, *d) {
		k.o.Pool.Release(d)
		return ctx.Err()
	}
	return nil
}

// isTooLarge reports whether no batch has space for a payload of the given bytes.
func (l *leaseState) isTooLarge(bytes int) bool {
	return bytes > l.o.Pool.Split.MaxRecord && !l.o.Pool.Splits()
}

// excludeRecords keeps all records of a frame from the device. For the state, package results computes them otherwise.
func excludeRecords(f *inflight.Frame) {
	f.Open()
	for i := range f.Records() {
		if f.Table.Status(i) == record.OK {
			f.Exclude(i, record.DeviceFault)
		}
	}
}

// isSettled reports whether nothing must be computed for an input, because an earlier lease has settled it or because the
// input is a delete marker. It acknowledges such an input.
func (k *intake) isSettled(drainCtx context.Context, d *inflight.Delivery) (bool, error) {
	stored := false
	if k.commits != nil {
		var err error
		if stored, err = k.commits.Settled(drainCtx, d); err != nil {
			return false, err
		}
	}
	switch {
	case stored:
		k.store.AlreadyStored(d)
	case !pull.IsDeleteMarker(d.Msg.Headers(), d.Msg.Data()):
		return false, nil
	}
	if k.acks.settledAlone(d) {
		return true, k.acks.acknowledge(drainCtx, nil)
	}
	return true, nil
}

// publishDeadLetter stores a dead letter and acknowledges its input. With commit markers, it first waits until all
// earlier inputs are acknowledged. If it returns an error, the lease ends, because no later input may be acknowledged.
func (k *intake) publishDeadLetter(ctx, drainCtx context.Context, d inflight.Delivery, why results.Reason, cause error) error {
	defer k.o.Pool.Release(&d)
	if k.commits != nil && !k.acks.awaitFirst(ctx) {
		return ctx.Err()
	}
	if err := k.store.PublishDeadLetter(drainCtx, &d, why, cause); err != nil {
		return err
	}
	k.store.ReportDeadLetter(&d, why, cause)
	if !k.acks.settledAlone(&d) {
		return nil // d is acknowledged together with the inputs before it
	}
	return k.acks.acknowledge(drainCtx, nil)
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
