package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/partition"
	"millrace/internal/ingest/topology"
)

// What a tenure leaves with the consumer, as metadata, so that the next one knows how this one ended, whatever became of
// the worker.
const (
	markOwner   = "millrace-owner"   // who works on the partition; gone when it has ended of itself
	markCaution = "millrace-caution" // partition.Caution
	markAlone   = "millrace-alone"   // the stream sequence of the payload that is alone on the device
	markBeside  = "millrace-beside"  // the stream sequence of a payload that is being compared with others: see compare
	markFault   = "millrace-fault"   // left by earlier versions only: an operator failed in the tenure
)

// markTimeout bounds one change of the metadata.
const markTimeout = 5 * time.Second

// takeOver reads how the last tenure ended, and marks that this one has begun. info is of the consumer now.
func (t *tenure) takeOver(ctx context.Context, info *jetstream.ConsumerInfo) error {
	marks := info.Config.Metadata
	before := partition.ParseCaution(marks[markCaution])
	floor := info.AckFloor.Stream
	caution := before.Begin(floor)
	// What this very worker has left, it has lived through: it could not reach the server to say so. What a worker of an earlier
	// version left because operators failed makes the next one careful, and is no death.
	fault := marks[markFault] != ""
	if owner, left := marks[markOwner]; left && (owner != t.e.id || fault) {
		if alone, err := strconv.ParseUint(marks[markAlone], 10, 64); err == nil && !fault {
			t.accused = alone
		}
		caution = before.AfterDeath(floor, info.Delivered.Stream, t.accused != 0)
		t.log.Warn("the last owner of the partition did not end of itself", "owner", owner, "floor", floor,
			"deaths", caution.Deaths, "batch_payloads", caution.BatchPayloads(t.pipe.BatchPayloads()))
	}
	t.caution, t.suspects = caution, caution.Suspects(t.pipe.BatchPayloads())
	t.ackedUpTo, t.floor = floor, partition.NewFloor(floor)
	t.besides = marks[markBeside] != ""
	return t.markOn(ctx, info, map[string]string{markOwner: t.e.id, markCaution: caution.String(), markAlone: "", markFault: ""})
}

// mark changes the consumer's metadata; an empty value takes a key away. Where the marks are another worker's by now it leaves
// them alone and fails with errPinLost.
func (t *tenure) mark(ctx context.Context, changes map[string]string) error {
	t.marking.Lock()
	defer t.marking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	// Not what was heard of it before: somebody may have changed the rest since, and it is to stay so.
	info, err := t.consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at the consumer before marking it: %w", err)
	}
	if info.Config.Metadata[markOwner] != t.e.id {
		return errPinLost
	}
	return t.markOn(ctx, info, changes)
}

// markOn is mark where the consumer has just been looked at.
func (t *tenure) markOn(ctx context.Context, info *jetstream.ConsumerInfo, changes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	config := info.Config
	marks := maps.Clone(config.Metadata)
	if marks == nil {
		marks = map[string]string{}
	}
	for key, value := range changes {
		if value == "" {
			delete(marks, key)
		} else {
			marks[key] = value
		}
	}
	marks[topology.MarkDelivered] = strconv.FormatUint(max(info.Delivered.Stream, delivered(marks)), 10)
	config.Metadata = marks
	if _, err := t.e.js.UpdateConsumer(ctx, t.w.opts.Stream, config); err != nil {
		return fmt.Errorf("mark the consumer: %w", err)
	}
	return nil
}

// relax notes that n suspects more have been acknowledged. After the last of them there is less reason for caution, and
// the consumer's metadata says so before anything else is computed.
func (t *tenure) relax(ctx context.Context, n int) error {
	t.mu.Lock()
	floor := t.ackedUpTo
	t.suspects -= n
	if t.caution.Deaths == 0 || t.caution.Due(floor) && t.suspects > 0 {
		t.mu.Unlock()
		return nil
	}
	t.caution = t.caution.Relaxed(floor)
	t.suspects = t.caution.Suspects(t.pipe.BatchPayloads())
	caution := t.caution
	t.mu.Unlock()
	return t.mark(ctx, map[string]string{markCaution: caution.String(), markBeside: ""})
}

// lookAfter looks whether the consumer is as it should be while nothing comes of it.
func (t *tenure) lookAfter(ctx, hard context.Context) error {
	info, err := t.look(ctx)
	if err != nil {
		return err
	}
	t.e.backlog.heard(t.partition, info.NumPending)
	if err := t.overridden(info); err != nil {
		return err
	}
	if err := t.unheard(hard, info); err != nil {
		return err
	}
	t.mu.Lock()
	taken := t.taken
	t.mu.Unlock()
	switch {
	case t.begun && info.Delivered.Consumer != taken:
		return t.fillTail(ctx, hard, info) // what it delivered would have come by now
	case !t.begun && info.NumAckPending > 0 && pinOf(info) == "":
		// Its owner is gone: the server has let go of it. What that one had would come only after AckWait.
		t.log.Info("taking over a partition whose owner is gone", "unacknowledged", info.NumAckPending)
		if err := t.noteDelivered(ctx, info); err != nil {
			return err
		}
		_, err := t.e.js.ResetConsumer(ctx, t.w.opts.Stream, info.Name)
		return err
	}
	return nil
}

// look asks how the consumer is. It is for who reads.
func (t *tenure) look(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	t.looked = time.Now()
	return t.consumer.Info(ctx)
}

// overridden is an error where the server has an acknowledgement of a delivery that this tenure has not had yet.
func (t *tenure) overridden(info *jetstream.ConsumerInfo) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun && info.AckFloor.Consumer > t.taken {
		return errOverridden
	}
	return nil
}

// unheard looks, while nothing comes, whether the server has the last acknowledgement. Where it has not it is said again; and
// where that is of no use either, as with one whose number a late acknowledgement of an earlier tenure has taken, it is an error.
func (t *tenure) unheard(hard context.Context, info *jetstream.ConsumerInfo) error {
	t.mu.Lock()
	msg, sequence, open := t.lastAcked, t.ackedUpTo, t.floor.Open()
	t.mu.Unlock()
	if msg == nil || open > 0 || info.AckFloor.Stream >= sequence {
		t.repeated = false
		return nil
	}
	if t.repeated {
		return errOverridden
	}
	t.repeated = true
	t.sendAck(hard, msg, sequence)
	return nil
}

// end gives the partition up. What was not finished is the next tenure's. With a device that a kernel lost the marks stay as
// they are: they say what it was lost with. Any other loss leaves the owner's, so that the next one is careful, but says
// nothing about the payload that was alone.
func (t *tenure) end(hard context.Context) {
	t.e.members.Has(t.partition, false)
	if !t.begun && t.pin == "" {
		return // the server has never chosen this worker
	}
	changes := map[string]string{markOwner: "", markAlone: "", markBeside: "", markFault: ""}
	if t.pipe.Err() != nil {
		delete(changes, markOwner)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), lastFlush)
	defer cancel()
	// The server hears of the end of the pull over one connection, and of what follows over another. It must not begin again
	// and deliver to nobody.
	err := t.nc.FlushWithContext(ctx)
	if err == nil && t.lastAcked != nil {
		// The server takes acknowledgements in behind its back: one that is still on its way when the consumer starts
		// again would be for nothing.
		err = t.w.confirmAll(ctx, t.lastAcked)
	}
	if err == nil && t.begun && !errors.Is(t.pipe.Err(), device.ErrKernelFault) {
		err = t.mark(ctx, changes)
	}
	if errors.Is(err, errPinLost) {
		return // there is nothing to give up any more
	}
	if err == nil {
		err = t.handOver(ctx)
	}
	if err != nil {
		t.log.Info("could not give the partition up; the next owner waits until the server lets go of it", "error", err)
	}
}

// handOver lets another worker have the partition at once, and what this one has not acknowledged too. It does nothing
// where another has it already.
func (t *tenure) handOver(ctx context.Context) error {
	info, err := t.consumer.Info(ctx)
	if err != nil || !pinnedTo(info, t.pin) {
		return err
	}
	if info.NumAckPending > 0 {
		if err := t.noteDelivered(ctx, info); err != nil {
			return err
		}
		if _, err := t.e.js.ResetConsumer(ctx, t.w.opts.Stream, info.Name); err != nil {
			return err
		}
	}
	stream, err := t.e.js.Stream(ctx, t.w.opts.Stream)
	if err != nil {
		return err
	}
	return stream.UnpinConsumer(ctx, info.Name, topology.PriorityGroup)
}

// pinnedTo says whether the server delivers to who has that pin.
func pinnedTo(info *jetstream.ConsumerInfo, pin string) bool {
	return slices.ContainsFunc(info.PriorityGroups, func(g jetstream.PriorityGroupState) bool { return g.PinnedClientID == pin })
}
