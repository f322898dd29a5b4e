package ingest

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// partitionConfig is the configuration of a partition's consumer.
func (r *rig) partitionConfig(p int) jetstream.ConsumerConfig {
	r.t.Helper()
	c, err := r.js.Consumer(r.ctx(), r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, p))
	if err != nil {
		r.t.Fatal(err)
	}
	return c.CachedInfo().Config
}

// changePartition gives a partition's consumer another configuration.
func (r *rig) changePartition(c jetstream.ConsumerConfig) {
	r.t.Helper()
	if _, err := r.js.UpdateConsumer(r.ctx(), r.opts.Stream, c); err != nil {
		r.t.Fatal(err)
	}
}

// What somebody changes of a partition's consumer while a worker has it outlasts the worker's annotations.
func TestExclusiveAnnotationsLeaveTheRestAsItIs(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	run := r.run(hostDevice(t), streams.Config{})
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

// A worker that was cut off ends its lease when another has begun one, and leaves the annotations alone.
func TestExclusiveAnnotationsOfAnotherStay(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	run := r.run(hostDevice(t), streams.Config{})
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

// idleLease is a lease on partition 0 that a worker has not begun.
type idleLease struct {
	*lease
	e        *exclusive
	consumer jetstream.Consumer
}

func (r *rig) idleLease() *idleLease {
	r.t.Helper()
	w := r.prepare(hostDevice(r.t), streams.Config{}).worker
	e, err := newExclusive(w)
	if err != nil {
		r.t.Fatal(err)
	}
	l, err := e.newLease(r.ctx(), 0, w.nc, w.pipes[0], r.opts.Logger)
	if err != nil {
		r.t.Fatal(err)
	}
	return &idleLease{lease: l, e: e, consumer: l.server.(*consumerServer).consumer}
}

// A worker that could not end its lease has not died of anything.
func TestTakeOverTellsADeathFromACut(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	r.publish(1, document)
	l := r.idleLease()
	for _, c := range []struct {
		name        string
		annotations map[string]string
		deaths      int
	}{
		{"nobody", nil, 0},
		{"another that died", map[string]string{annotationOwner: "another"}, 1},
		{"itself, cut off", map[string]string{annotationOwner: l.e.id, annotationAlone: "1"}, 0},
		{"itself, after a failure", map[string]string{annotationOwner: l.e.id, annotationFault: string(results.OperatorError)}, 1},
	} {
		config := r.partitionConfig(0)
		config.Metadata = c.annotations
		r.changePartition(config)
		info, err := l.consumer.Info(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		info.Delivered.Stream = 1
		if err := l.takeOver(r.ctx(), info); err != nil {
			t.Fatal(err)
		}
		if l.caution.Deaths != c.deaths {
			t.Errorf("after %s: %d deaths, want %d", c.name, l.caution.Deaths, c.deaths)
		}
		if owner := r.partitionConfig(0).Metadata[annotationOwner]; owner != l.e.id {
			t.Errorf("after %s the owner is %q, want %q", c.name, owner, l.e.id)
		}
	}
}

// An acknowledgement that the server does not have is sent again, and then the lease begins anew.
func TestAnAcknowledgementThatTheServerNeverGot(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	l := r.idleLease()
	acknowledged := &countedAck{}
	l.lastAcked, l.ackedUpTo = acknowledged, 3
	at := func(floor uint64) error {
		return l.checkAcknowledged(r.ctx(), &jetstream.ConsumerInfo{AckFloor: jetstream.SequenceInfo{Stream: floor}})
	}
	if err := at(3); err != nil || acknowledged.times != 0 {
		t.Errorf("with the acknowledgement at the server: %v, sent %d times", err, acknowledged.times)
	}
	if err := at(2); err != nil || acknowledged.times != 1 {
		t.Errorf("at the first look without it: %v, sent %d times; want once and no error", err, acknowledged.times)
	}
	if err := at(3); err != nil {
		t.Errorf("once it has come: %v", err)
	}
	if err := at(2); err != nil || acknowledged.times != 2 {
		t.Errorf("at the next look without it: %v, sent %d times; want twice and no error", err, acknowledged.times)
	}
	l.ackedUpTo = 4 // what was behind it has been acknowledged too
	if err := at(2); err != nil || acknowledged.times != 3 {
		t.Errorf("at the first look without a later one: %v, sent %d times; want three times and no error", err, acknowledged.times)
	}
	if err := at(2); !errors.Is(err, errOverridden) {
		t.Errorf("where sending it again was of no use: %v, want %v", err, errOverridden)
	}
}

// countedAck counts how often a message is acknowledged.
type countedAck struct {
	pull.Receipt
	times int
}

func (s *countedAck) Ack() error { s.times++; return nil }
