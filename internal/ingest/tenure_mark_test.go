package ingest

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
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

// What somebody changes of a partition's consumer while a worker has it outlasts the marks that the worker leaves there.
func TestExclusiveMarksLeaveTheRestAsItIs(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	run := r.run(hostDevice(t), streams.Config{})
	r.publish(10, document)
	r.tally.awaitStored(t, 10)
	changed := r.partitionConfig(0)
	if changed.Metadata[markOwner] == "" {
		t.Errorf("with a worker at it the consumer has the marks %v, want %s among them", changed.Metadata, markOwner)
	}
	changed.Description = "changed meanwhile"
	r.changePartition(changed)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if after := r.partitionConfig(0); after.Description != changed.Description || after.Metadata[markOwner] != "" {
		t.Errorf("afterwards it is called %q and has the marks %v; want %q, and no %s", after.Description, after.Metadata, changed.Description, markOwner)
	}
}

// A worker that was cut off ends its tenure when another has begun one.
func TestExclusiveMarksOfAnotherStay(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	run := r.run(hostDevice(t), streams.Config{})
	r.publish(10, document)
	r.tally.awaitStored(t, 10)
	taken := r.partitionConfig(0)
	taken.Metadata[markOwner], taken.Metadata[markAlone] = "another", "11"
	r.changePartition(taken)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if marks := r.partitionConfig(0).Metadata; marks[markOwner] != "another" || marks[markAlone] != "11" {
		t.Errorf("afterwards the marks are %v, want those of the other worker", marks)
	}
}

// idleTenure is one of partition 0 that a worker has not begun.
func (r *rig) idleTenure() *tenure {
	r.t.Helper()
	w := r.prepare(hostDevice(r.t), streams.Config{}).worker
	e, err := newExclusive(w)
	if err != nil {
		r.t.Fatal(err)
	}
	t := &tenure{e: e, w: w, nc: w.nc, pipe: w.pipes[0], log: r.opts.Logger}
	if t.consumer, err = e.js.Consumer(r.ctx(), r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, 0)); err != nil {
		r.t.Fatal(err)
	}
	return t
}

// A worker that could not say that its tenure was over has not died of anything.
func TestTakeOverTellsADeathFromACut(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	r.publish(1, document)
	ten := r.idleTenure()
	for _, c := range []struct {
		name   string
		marks  map[string]string
		deaths int
	}{
		{"nobody", nil, 0},
		{"another that died", map[string]string{markOwner: "another"}, 1},
		{"itself, cut off", map[string]string{markOwner: ten.e.id, markAlone: "1"}, 0},
		{"itself, after a failure", map[string]string{markOwner: ten.e.id, markFault: string(results.OperatorError)}, 1},
	} {
		config := r.partitionConfig(0)
		config.Metadata = c.marks
		r.changePartition(config)
		info, err := ten.consumer.Info(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		info.Delivered.Stream = 1
		if err := ten.takeOver(r.ctx(), info); err != nil {
			t.Fatal(err)
		}
		if ten.caution.Deaths != c.deaths {
			t.Errorf("after %s: %d deaths, want %d", c.name, ten.caution.Deaths, c.deaths)
		}
		if owner := r.partitionConfig(0).Metadata[markOwner]; owner != ten.e.id {
			t.Errorf("after %s the owner is %q, want %q", c.name, owner, ten.e.id)
		}
	}
}

// An acknowledgement that the server does not know is said again, and then the tenure begins anew.
func TestAnAcknowledgementThatTheServerNeverHeardOf(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	ten := r.idleTenure()
	acknowledged := &said{}
	ten.lastAcked, ten.ackedUpTo = acknowledged, 3
	at := func(floor uint64) error {
		return ten.unheard(r.ctx(), &jetstream.ConsumerInfo{AckFloor: jetstream.SequenceInfo{Stream: floor}})
	}
	if err := at(3); err != nil || acknowledged.times != 0 {
		t.Errorf("with the acknowledgement at the server: %v, said %d times", err, acknowledged.times)
	}
	if err := at(2); err != nil || acknowledged.times != 1 {
		t.Errorf("at the first look without it: %v, said %d times; want once and no error", err, acknowledged.times)
	}
	if err := at(3); err != nil {
		t.Errorf("once it has come: %v", err)
	}
	if err := at(2); err != nil || acknowledged.times != 2 {
		t.Errorf("at the next look without it: %v, said %d times; want twice and no error", err, acknowledged.times)
	}
	if err := at(2); !errors.Is(err, errOverridden) {
		t.Errorf("where saying it again was of no use: %v, want %v", err, errOverridden)
	}
}

// said counts how often a message is acknowledged.
type said struct {
	inflight.Receipt
	times int
}

func (s *said) Ack() error { s.times++; return nil }
