package partitioned

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
)

// TestTakeOverTellsADeathFromACut: a worker that could not end its lease has not died.
func TestTakeOverTellsADeathFromACut(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.publish(1, document)
	l := r.idleLease()
	for _, c := range []struct {
		name        string
		annotations map[string]string
		deaths      int
	}{
		{"nobody", nil, 0},
		{"another that died", map[string]string{annotationOwner: "another"}, 1},
		{"itself, cut off", map[string]string{annotationOwner: l.m.id, annotationAlone: "1"}, 0},
		{"itself, after a failure", map[string]string{annotationOwner: l.m.id, annotationFault: string(results.OperatorError)}, 1},
	} {
		config := r.partitionConfig(0)
		config.Metadata = c.annotations
		r.changePartition(config)
		info, err := l.consumer.Info(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		info.Delivered.Stream = 1
		if err := l.caution.takeOver(r.ctx(), info, l.batches.largest()); err != nil {
			t.Fatal(err)
		}
		if l.caution.due.Deaths != c.deaths {
			t.Errorf("after %s: %d deaths, want %d", c.name, l.caution.due.Deaths, c.deaths)
		}
		if owner := r.partitionConfig(0).Metadata[annotationOwner]; owner != l.m.id {
			t.Errorf("after %s the owner is %q, want %q", c.name, owner, l.m.id)
		}
	}
}

// TestAnAcknowledgementThatTheServerNeverGot: an acknowledgement that the server does not have is resent once, and then the lease
// restarts.
func TestAnAcknowledgementThatTheServerNeverGot(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	l := r.idleLease()
	acknowledged := &countedAck{}
	l.acks.last, l.acks.upTo = acknowledged, 3
	at := func(floor uint64) error {
		return l.reader.checker.checkAcknowledged(r.ctx(), &jetstream.ConsumerInfo{AckFloor: jetstream.SequenceInfo{Stream: floor}})
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
	l.acks.upTo = 4 // the inputs after it have been acknowledged too
	if err := at(2); err != nil || acknowledged.times != 3 {
		t.Errorf("at the first look without a later one: %v, sent %d times; want three times and no error", err, acknowledged.times)
	}
	if err := at(2); !errors.Is(err, errOverridden) {
		t.Errorf("where sending it again was of no use: %v, want %v", err, errOverridden)
	}
}

// countedAck counts the acknowledgements of a message.
type countedAck struct {
	pull.Receipt
	times int
}

func (s *countedAck) Ack() error { s.times++; return nil }
