package lease

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file has the consumer of shared delivery in the lease model, with the rules of nats-server 2.15 (consumer.go:
// processAckMsgLocked, processNak).

func (s *modelServer) isSettled() bool {
	for _, in := range s.inputs {
		if s.results[in] == "" {
			return false
		}
	}
	return len(s.pending) == 0 && s.nextSequence > s.last() // a restart of the server may have forgotten deliveries
}

// nextShared returns the message that the server delivers next. ok is false if there is none.
func (s *modelServer) nextShared(w *leaseWorker) (msg *modelMessage, ok bool) {
	now := time.Now()
	for _, in := range slices.Sorted(maps.Keys(s.pending)) {
		late := now.Sub(s.sentAt[in]) >= modelAckWait
		if at, delayed := s.delayed[in]; delayed {
			late = !now.Before(at)
		}
		if s.pending[in] || late {
			s.m.did("redelivered")
			return s.sendShared(w, in), true
		}
	}
	i, _ := slices.BinarySearch(s.inputs, s.nextSequence)
	if i == len(s.inputs) || len(s.pending) >= modelMaxPending {
		return nil, false
	}
	s.nextSequence = s.inputs[i] + 1
	return s.sendShared(w, s.inputs[i]), true
}

func (s *modelServer) sendShared(w *leaseWorker, in uint64) *modelMessage {
	s.pending[in], s.sentTo[in], s.sentAt[in] = false, w, time.Now()
	delete(s.delayed, in)
	s.counts[in]++
	s.nextNumber++
	s.recorded = jetstream.SequenceInfo{Consumer: s.nextNumber - 1, Stream: s.nextSequence - 1}
	s.m.did("delivered")
	s.m.note("delivery %d of %d to %s", s.counts[in], in, w.id)
	return &modelMessage{
		m: s.m, w: w, number: s.nextNumber - 1, sequence: in, deliveries: s.counts[in], sent: s.m.steps, since: time.Now(),
	}
}

// deliverShared sends the next message to one of the pulls.
func (s *modelServer) deliverShared() {
	var open []*modelPull
	for _, p := range s.pulls {
		if p.open {
			open = append(open, p)
		}
	}
	if len(open) == 0 {
		return
	}
	p := open[s.m.random.IntN(len(open))]
	msg, ok := s.nextShared(p.w)
	if !ok {
		return
	}
	if s.skipped = (s.m.faults || s.m.calm && !s.skipped) && s.m.random.IntN(25) == 0; s.skipped {
		s.m.did("delivery lost")
		return
	}
	p.wire = append(p.wire, msg)
}

// settleShared removes an input whose result or dead letter must be stored.
func (s *modelServer) settleShared(in uint64, what string) {
	if s.results[in] == "" {
		s.m.violate("input %d is %s without a result or a dead letter", in, what)
	}
	if _, ok := s.pending[in]; !ok {
		s.m.did("acknowledgement ignored")
		return
	}
	s.m.did(what)
	delete(s.pending, in)
	delete(s.delayed, in)
}

// say sends an acknowledgement to the server, which may be lost.
func (d *modelMessage) say(what string, apply func()) error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if !d.w.dead {
		d.m.acks = append(d.m.acks, modelAck{w: d.w, sequence: d.sequence, what: what, apply: apply})
	}
	return nil
}

func (d *modelMessage) Ack() error {
	if d.e != nil {
		return d.e.acknowledge(d)
	}
	return d.say("ack", func() { d.m.server.settleShared(d.sequence, "acknowledged") })
}

func (d *modelMessage) DoubleAck(ctx context.Context) error {
	if d.e != nil {
		return d.e.confirm(ctx, d)
	}
	return d.w.call(ctx, "confirm", false, func() error { d.m.server.settleShared(d.sequence, "acknowledged"); return nil })
}

func (d *modelMessage) TermWithReason(string) error {
	return d.say("term", func() { d.m.server.settleShared(d.sequence, "terminated input") })
}

func (d *modelMessage) NakWithDelay(delay time.Duration) error {
	return d.say("nak", func() {
		if _, ok := d.m.server.pending[d.sequence]; ok {
			d.m.did("given back")
			d.m.server.delayed[d.sequence] = time.Now().Add(delay)
		}
	})
}
