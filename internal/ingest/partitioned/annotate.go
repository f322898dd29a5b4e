package partitioned

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// Keys of a lease's annotations in the consumer's metadata. They tell the next lease how this lease ended, even if its
// worker died.
const (
	annotationOwner   = "millrace-owner"   // ID of the worker that owns the partition; removed when its lease ends properly
	annotationCaution = "millrace-caution" // a partition.Caution
	annotationAlone   = "millrace-alone"   // stream sequence of the payload that runs alone on the device; for a frame, the text of a suspect
	annotationRecords = "millrace-records" // text of the suspect whose records ran alone on the device when an owner died
	annotationBeside  = "millrace-beside"  // stream sequence of a payload that is being compared with others; see pipelineBatches.compare
	annotationBlamed  = "millrace-blamed"  // operator that caused the loss of the device in the last lease; absent if unknown
	annotationLoose   = "millrace-loose"   // present if the last lease stored no commit markers
)

const annotateTimeout = 5 * time.Second

// errPinLost ends a lease after the server has pinned another worker.
var errPinLost = errors.New("the server gave the partition to another worker meanwhile")

// annotations updates a lease's annotations in the consumer's metadata. Methods are safe for concurrent use.
type annotations struct {
	id     string // this worker's ID
	server leaseServer
	acks   *acknowledgements
	token  chan struct{} // semaphore for reading and updating the metadata
}

func newAnnotations(id string, server leaseServer, acks *acknowledgements) *annotations {
	return &annotations{id: id, server: server, acks: acks, token: make(chan struct{}, 1)}
}

// annotate updates the consumer's annotations. An empty value removes a key. If this worker isn't the annotated owner,
// annotate changes nothing and returns errPinLost.
func (n *annotations) annotate(ctx context.Context, changes map[string]string) error {
	return n.update(ctx, func(map[string]string) map[string]string { return changes })
}

// noteFault annotates the operator that caused the loss of the device, and the time of the loss, for the next lease.
func (n *annotations) noteFault(ctx context.Context, f inflight.OperatorFault) error {
	return n.update(ctx, func(left map[string]string) map[string]string {
		return map[string]string{annotationBlamed: f.Operator, inflight.FaultNote: inflight.AddFault(left[inflight.FaultNote], f)}
	})
}

// update is like annotate, but change returns the changes for the current metadata.
func (n *annotations) update(ctx context.Context, change func(left map[string]string) map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, annotateTimeout)
	defer cancel()
	select {
	case n.token <- struct{}{}:
		defer func() { <-n.token }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// The metadata must be current, because other workers may have changed other keys and the update replaces all keys.
	info, err := n.server.info(ctx)
	if err != nil {
		return fmt.Errorf("look at the consumer before marking it: %w", err)
	}
	if info.Config.Metadata[annotationOwner] != n.id {
		return errPinLost
	}
	return n.annotateOn(ctx, info, change(info.Config.Metadata))
}

// annotateOn is like annotate, but updates the metadata in info and doesn't check the owner. It also updates the
// annotated last delivery.
func (n *annotations) annotateOn(ctx context.Context, info *jetstream.ConsumerInfo, changes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, annotateTimeout)
	defer cancel()
	metadata := maps.Clone(info.Config.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	for key, value := range changes {
		if value == "" {
			delete(metadata, key)
		} else {
			metadata[key] = value
		}
	}
	taken, _ := n.acks.reached()
	metadata[topology.MarkDelivered] = strconv.FormatUint(max(info.Delivered.Stream, delivered(metadata), taken), 10)
	if err := n.server.annotate(ctx, info.Config, metadata); err != nil {
		return fmt.Errorf("mark the consumer: %w", err)
	}
	return nil
}

// delivered returns the annotated last delivery as a stream sequence, or 0 if the annotation is absent or invalid.
func delivered(metadata map[string]string) uint64 {
	n, err := strconv.ParseUint(metadata[topology.MarkDelivered], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
