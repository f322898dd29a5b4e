package partitioned

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// errPinLost ends a lease of which another worker has the partition by now.
var errPinLost = errors.New("the server gave the partition to another worker meanwhile")

// annotations changes what a consumer's metadata says about a lease. Several goroutines may do so.
type annotations struct {
	id     string // this worker's
	server leaseServer
	acks   *acknowledgements
	token  chan struct{} // holds a token while the metadata is read and changed

	// noted is how far the consumer had delivered before this lease reset it. The lease keeps it, because another worker may
	// overwrite the metadata with an older copy.
	noted atomic.Uint64
}

func newAnnotations(id string, server leaseServer, acks *acknowledgements) *annotations {
	return &annotations{id: id, server: server, acks: acks, token: make(chan struct{}, 1)}
}

// annotate changes the consumer's annotations; an empty value removes a key. If they are another worker's by now, it leaves
// them alone and fails with errPinLost.
func (n *annotations) annotate(ctx context.Context, changes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, annotateTimeout)
	defer cancel()
	select {
	case n.token <- struct{}{}:
		defer func() { <-n.token }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// An earlier answer would not do: somebody may have changed the rest since, and it has to stay so.
	info, err := n.server.info(ctx)
	if err != nil {
		return fmt.Errorf("look at the consumer before marking it: %w", err)
	}
	if info.Config.Metadata[annotationOwner] != n.id {
		return errPinLost
	}
	return n.annotateOn(ctx, info, changes)
}

// annotateOn is annotate for a consumer whose state is known.
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
	metadata[topology.MarkDelivered] = strconv.FormatUint(max(info.Delivered.Stream, delivered(metadata), taken, n.noted.Load()), 10)
	if err := n.server.annotate(ctx, info.Config, metadata); err != nil {
		return fmt.Errorf("mark the consumer: %w", err)
	}
	return nil
}

// noteDelivered annotates how far the consumer has delivered, before it is reset.
func (n *annotations) noteDelivered(ctx context.Context, info *jetstream.ConsumerInfo) error {
	n.noted.Store(max(n.noted.Load(), info.Delivered.Stream))
	if delivered(info.Config.Metadata) >= info.Delivered.Stream {
		return nil
	}
	return n.annotateOn(ctx, info, nil)
}

// delivered returns the highest stream sequence that was delivered before, by the annotations; 0 without one.
func delivered(metadata map[string]string) uint64 {
	n, err := strconv.ParseUint(metadata[topology.MarkDelivered], 10, 64)
	if err != nil {
		return 0 // nothing, or nothing of ours
	}
	return n
}
