package partitioned

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/topology"
)

// The annotations that a lease leaves on the consumer, as metadata. They tell the next lease how this one ended, whatever
// became of the worker.
const (
	annotationOwner   = "millrace-owner"   // the worker that has the partition; removed when its lease ends in good order
	annotationCaution = "millrace-caution" // partition.Caution
	annotationAlone   = "millrace-alone"   // the stream sequence of the payload that is alone on the device
	annotationBeside  = "millrace-beside"  // the stream sequence of a payload that is being compared with others: see compare
	annotationFault   = "millrace-fault"   // left by earlier versions only: an operator failed during the lease
)

// annotateTimeout bounds one change of the metadata.
const annotateTimeout = 5 * time.Second

// takeOver reads how the last lease ended, and annotates that this one has begun. info is the consumer's state now.
func (l *lease) takeOver(ctx context.Context, info *jetstream.ConsumerInfo) error {
	left := info.Config.Metadata
	before := partition.ParseCaution(left[annotationCaution])
	floor := info.AckFloor.Stream
	caution := before.Begin(floor)
	// A lease that this very worker left behind was no death: the worker could not reach the server to end it. What a worker of
	// an earlier version left because operators failed makes the next one cautious, and is no death either.
	fault := left[annotationFault] != ""
	if owner, dead := left[annotationOwner]; dead && (owner != l.id || fault) {
		if alone, err := strconv.ParseUint(left[annotationAlone], 10, 64); err == nil && !fault {
			l.accused = alone
		}
		caution = before.AfterDeath(floor, info.Delivered.Stream, l.accused != 0)
		l.log.Warn("the last owner of the partition did not end of itself", "owner", owner, "floor", floor,
			"deaths", caution.Deaths, "batch_payloads", caution.BatchPayloads(l.batches.largest()))
	}
	l.caution, l.quarantined = caution, caution.Quarantined(l.batches.largest())
	l.ackedUpTo, l.floor = floor, partition.NewFloor(floor)
	l.comparing = left[annotationBeside] != ""
	return l.annotateOn(ctx, info, map[string]string{
		annotationOwner: l.id, annotationCaution: caution.String(), annotationAlone: "", annotationFault: "",
	})
}

// annotate changes the consumer's annotations; an empty value removes a key. If they are another worker's by now, it leaves
// them alone and fails with errPinLost.
func (l *lease) annotate(ctx context.Context, changes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, annotateTimeout)
	defer cancel()
	select {
	case l.annotating <- struct{}{}:
		defer func() { <-l.annotating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// An earlier answer would not do: somebody may have changed the rest since, and it has to stay so.
	info, err := l.server.info(ctx)
	if err != nil {
		return fmt.Errorf("look at the consumer before marking it: %w", err)
	}
	if info.Config.Metadata[annotationOwner] != l.id {
		return errPinLost
	}
	return l.annotateOn(ctx, info, changes)
}

// annotateOn is annotate for a consumer whose state is known.
func (l *lease) annotateOn(ctx context.Context, info *jetstream.ConsumerInfo, changes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, annotateTimeout)
	defer cancel()
	annotations := maps.Clone(info.Config.Metadata)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range changes {
		if value == "" {
			delete(annotations, key)
		} else {
			annotations[key] = value
		}
	}
	annotations[topology.MarkDelivered] = strconv.FormatUint(max(info.Delivered.Stream, delivered(annotations), l.highestTaken()), 10)
	if err := l.server.annotate(ctx, info.Config, annotations); err != nil {
		return fmt.Errorf("mark the consumer: %w", err)
	}
	return nil
}

// relax notes that n quarantined payloads have been acknowledged. After the last of them there is less reason for caution,
// and the annotations say so before anything else is computed.
func (l *lease) relax(ctx context.Context, n int) error {
	l.mu.Lock()
	floor := l.ackedUpTo
	l.quarantined -= n
	if l.caution.Deaths == 0 || l.caution.Due(floor) && l.quarantined > 0 {
		l.mu.Unlock()
		return nil
	}
	l.caution = l.caution.Relaxed(floor)
	l.quarantined = l.caution.Quarantined(l.batches.largest())
	caution := l.caution
	l.mu.Unlock()
	return l.annotate(ctx, map[string]string{annotationCaution: caution.String(), annotationBeside: ""})
}
