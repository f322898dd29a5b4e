package audit

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/topology"
)

// order checks that the results of each partition are stored in the order of their inputs. That is promised for what is stored with commit
// markers, so it holds from a partition's first marker on.
type order struct {
	partitions []place
}

// place is how far the results of a partition are.
type place struct {
	begins uint64 // stream sequence of the first marker; 0: none
	last   uint64 // the highest input with a result
	stored int64  // when that was stored
}

// readOrder looks up where the order of each partition begins.
func readOrder(ctx context.Context, js jetstream.JetStream, t topology.Topology) (*order, error) {
	o := &order{}
	if !t.Exclusive || t.ExactlyOnce == topology.Off || t.CommitPrefix == "" {
		return o, nil
	}
	o.partitions = make([]place, t.Partitions)
	for p := range o.partitions {
		m, err := jsapi.Next(ctx, js, t.ResultStream, 1, topology.CommitSubject(t.CommitPrefix, t.ResultStream, t.Stream, t.Consumer, p))
		if err != nil {
			return nil, fmt.Errorf("look up the first commit marker of partition %d: %w", p, err)
		}
		if m != nil {
			o.partitions[p].begins = m.Sequence
		}
	}
	return o, nil
}

// promised reports whether any partition has an order.
func (o *order) promised() bool {
	for _, p := range o.partitions {
		if p.begins > 0 {
			return true
		}
	}
	return false
}

// enter takes the final message of a result, which has that sequence in its stream. It returns what is wrong.
func (o *order) enter(at uint64, m *message) (wrong string) {
	if len(o.partitions) == 0 {
		return ""
	}
	number := partitionOf(m.subject, len(o.partitions))
	switch p := &o.partitions[number]; {
	case p.begins == 0 || at < p.begins:
	case m.sequence >= p.last:
		p.last, p.stored = m.sequence, m.stored
	case m.stored <= p.stored: // otherwise the sequence was used a second time
		return fmt.Sprintf("its result is stored after that of input %d of the same partition, %d", p.last, number)
	}
	return ""
}

// partitionOf returns the partition that the server puts before a subject.
func partitionOf(subject string, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(subject)) // never fails
	return int(h.Sum32() % uint32(partitions))
}
