package ingest

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// annotationOwner and annotationAlone are the keys of annotations on a partition's consumer. See
// docs/adr/0017-exclusive-delivery.md.
const (
	annotationOwner = "millrace-owner"
	annotationAlone = "millrace-alone"
)

func (r *rig) partitionConfig(p int) jetstream.ConsumerConfig {
	r.Helper()
	c := r.Consumer(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, p))
	return c.CachedInfo().Config
}

func (r *rig) changePartition(c jetstream.ConsumerConfig) {
	r.Helper()
	if _, err := r.JS.UpdateConsumer(r.Ctx(), r.opts.Stream, c); err != nil {
		r.Fatal(err)
	}
}

// TestExclusiveAnnotationsLeaveTheRestAsItIs shows that the worker's annotations keep another client's changes to a
// partition's consumer.
func TestExclusiveAnnotationsLeaveTheRestAsItIs(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(10, document)
	r.tally.awaitStored(t, 10)
	changed := r.partitionConfig(0)
	if changed.Metadata[annotationOwner] == "" {
		t.Errorf("with a worker at it the consumer has the annotations %v, want %s among them", changed.Metadata, annotationOwner)
	}
	changed.Description = "changed meanwhile"
	r.changePartition(changed)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if after := r.partitionConfig(0); after.Description != changed.Description || after.Metadata[annotationOwner] != "" {
		t.Errorf("afterwards it is called %q and has the annotations %v; want %q, and no %s", after.Description, after.Metadata, changed.Description, annotationOwner)
	}
}

// TestExclusiveAnnotationsOfAnotherStay shows that a disconnected worker ends its lease after another worker begins
// one. It does not change the new owner's annotations.
func TestExclusiveAnnotationsOfAnotherStay(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(10, document)
	r.tally.awaitStored(t, 10)
	taken := r.partitionConfig(0)
	taken.Metadata[annotationOwner], taken.Metadata[annotationAlone] = "another", "11"
	r.changePartition(taken)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if annotations := r.partitionConfig(0).Metadata; annotations[annotationOwner] != "another" || annotations[annotationAlone] != "11" {
		t.Errorf("afterwards the annotations are %v, want those of the other worker", annotations)
	}
}
