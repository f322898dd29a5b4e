package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lookup"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

// This file simulates the streams of results and dead letters. The workers store in them with package results. A stream forgets the
// ids of its messages after its duplicate window, and at times it has no room. The model derives what a worker has stored from the
// messages that arrive.

// newWriter returns a Writer for the lease e. With shared delivery, e is nil. The streams accept dead letters of any size, so the Writer
// neither stores payloads apart nor reconnects.
func (w *leaseWorker) newWriter(e *modelLease) *results.Writer {
	m, p := w.m, &modelPublisher{w: w, e: e}
	now := func(name string) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: name, Duplicates: m.window}, TimeStamp: time.Now()}
	}
	return results.NewModelWriter(&results.Server{
		First: p, Again: p, Find: p.find, Closed: w.isDead,
		MaxPayload:     func() int64 { return w.maxPayload },
		AwaitConnected: func(ctx context.Context) bool { return ctx.Err() == nil },
		Refresh:        func(context.Context, bool) {},
	}, results.Options{
		Topology: topology.Topology{
			Stream: "IN", Subjects: []string{"ingest.>"}, ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: modelLetters, Exclusive: e != nil,
		},
		Operators: m.operators, Format: operator.Binary, AckWait: modelAckWait, Log: m.log, Observer: modelObserver{}, Progress: &inflight.Progress{},
	}, now("RESULTS"), now("DEAD"))
}

// modelLetters is the prefix of the subjects of dead letters.
const modelLetters = "deadletter"

// modelObserver implements results.Observer.
type modelObserver struct{}

func (modelObserver) Frame(inflight.FrameStats)                                        {}
func (modelObserver) OperatorFault(inflight.OperatorFault)                             {}
func (modelObserver) DeadLettered(inflight.DeadLetter)                                 {}
func (modelObserver) StateLogged(int)                                                  {}
func (modelObserver) PayloadLeftOut()                                                  {}
func (modelObserver) Settled(inflight.Outcome, int, int, time.Duration, time.Duration) {}

func (w *leaseWorker) isDead() bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.dead
}

// modelPublisher implements store.Publisher, and looks messages up.
type modelPublisher struct {
	w *leaseWorker
	e *modelLease // nil with shared delivery
}

// publishCall is the prefix of the names of calls that store messages without a marker.
const publishCall = "publish "

var (
	errModelPublish = errors.New("no answer")
	errModelFull    = &jetstream.APIError{ErrorCode: 10077, Description: "the stream has no room"}
)

// Publish implements store.Publisher. It may send messages until the deadline of ctx. Messages that are too long in transit are lost,
// because package results assumes that.
func (p *modelPublisher) Publish(ctx context.Context, msgs []*nats.Msg, dst []store.Answer) []store.Answer {
	if len(msgs) == 0 {
		return dst
	}
	m, sent, transit := p.w.m, modelSent(msgs), p.w.m.window-store.PublishFor(p.w.m.window)
	err, answers, first := context.DeadlineExceeded, make([]store.Answer, len(msgs)), p.e.storing(msgs)
	if deadline, ok := ctx.Deadline(); !ok || time.Now().Before(deadline) {
		arrival := deadline.Add(transit)
		if !ok {
			arrival = time.Now().Add(transit)
		}
		err = p.w.call(ctx, publishCall+store.IDOf(msgs[0].Header), false, func() error {
			if time.Now().After(arrival) {
				m.did("request lost")
				return errModelPublish
			}
			sequence, _ := strconv.ParseUint(sent[0].Header.Get(results.HeaderSequence), 10, 64)
			m.server.notice(p.w, sequence)
			m.publishes(p.e, first)
			for n, msg := range sent {
				answers[n] = p.arrive(msg)
			}
			return nil
		})
	}
	if err != nil { // a late request may still write to answers
		return append(dst, slices.Repeat([]store.Answer{{Err: err}}, len(msgs))...)
	}
	return append(dst, answers...)
}

// arrive stores a message. It loses some messages and some answers.
func (p *modelPublisher) arrive(msg *nats.Msg) (a store.Answer) {
	m := p.w.m
	c := &m.server.chains[0]
	if isLetter(msg) {
		c = &m.server.chains[1]
	}
	switch {
	case c.isFull(m, "a message for "):
		return store.Answer{Err: errModelFull}
	case m.faults && m.random.IntN(12) == 0:
		m.did("result lost")
		return store.Answer{Err: errModelPublish}
	}
	a.Duplicate = m.server.receive(p.w, p.e, c, msg)
	if m.faults && m.random.IntN(12) == 0 {
		m.did("confirmation lost")
		a.Err = errModelPublish
	}
	return a
}

// isFull reports whether the stream refuses what because it has no room.
func (c *modelChain) isFull(m *leaseModel, what string) bool {
	if !m.faults || m.steps >= c.fullUntil {
		return false
	}
	m.did("no room for " + what + c.name)
	return true
}

// find implements results.Server.Find.
func (p *modelPublisher) find(ctx context.Context, inputs []lookup.Wanted) (found []lookup.Found, began time.Time, err error) {
	began, inputs = time.Now(), slices.Clone(inputs)
	err = p.w.call(ctx, fmt.Sprint("look up ", inputs[0].Sequence), false, func() error {
		found = make([]lookup.Found, len(inputs))
		for n, in := range inputs {
			found[n] = p.w.m.server.lookUp(in.Input)
		}
		return nil
	})
	if err != nil {
		return nil, began, err
	}
	return found, began, nil
}

func (s *modelServer) lookUp(in lookup.Input) (f lookup.Found) {
	s.m.did("looked up")
	id := fmt.Sprintf("IN:%d:%d", in.Sequence, in.Stored)
	if f.Done = s.results[in.Sequence] == id; f.Done {
		s.m.did("found by a lookup")
		return f
	}
	for i := range s.chains {
		for _, stored := range slices.Sorted(maps.Keys(s.chains[i].ids)) {
			switch {
			case strings.HasPrefix(stored, id+"/"):
				s.m.did("part found by a lookup")
				f.Partial = append(f.Partial, lookup.Partial{ID: stored})
			case strings.HasPrefix(stored, id+"#"):
				s.m.did("record letter found by a lookup")
				i, _ := strconv.Atoi(stored[len(id)+1:])
				f.Partial = append(f.Partial, lookup.Partial{ID: stored, Reason: s.letters[modelRecord{in.Sequence, i}].String()})
			}
		}
	}
	return f
}

// modelSent returns copies of messages, as they are in transit.
func modelSent(msgs []*nats.Msg) []*nats.Msg {
	sent := make([]*nats.Msg, len(msgs))
	for n, msg := range msgs {
		sent[n] = &nats.Msg{Subject: msg.Subject, Header: maps.Clone(msg.Header), Data: bytes.Clone(msg.Data)}
	}
	return sent
}

func isLetter(msg *nats.Msg) bool { return strings.HasPrefix(msg.Subject, modelLetters) }

// receive stores a result or a dead letter in c. It returns true if c drops the message because of its id.
func (s *modelServer) receive(w *leaseWorker, e *modelLease, c *modelChain, msg *nats.Msg) (duplicate bool) {
	sequence, _ := strconv.ParseUint(msg.Header.Get(results.HeaderSequence), 10, 64)
	id := store.IDOf(msg.Header)
	at, known := c.ids[id]
	duplicate = known && !s.m.once && time.Since(at) < s.m.window
	switch {
	case s.m.once:
		s.m.arrived(c, sequence, known || s.results[sequence] != "")
	case known && !duplicate && !s.isForgotten(e, sequence):
		s.m.violate("the message %s is stored a second time after %v", id, time.Since(at))
	}
	if !known {
		c.ids[id] = time.Now()
	}
	if isLetter(msg) {
		s.receiveLetter(sequence, id, msg)
	} else {
		s.receiveResult(w, e, sequence, id, msg, known)
	}
	return duplicate
}

func (s *modelServer) receiveLetter(sequence uint64, id string, msg *nats.Msg) {
	in, why := s.m.input(sequence), results.Reason(msg.Header.Get(results.HeaderReason))
	body := in.body
	if at := msg.Header.Get(results.HeaderRecord); at != "" {
		i, _ := strconv.Atoi(at)
		body = in.records[i]
		s.storeLetter(modelRecord{sequence, i}, why)
	} else {
		s.mayGiveUp(sequence, why)
		if why == results.InvalidFrame {
			s.m.did("broken frame")
		}
		s.store(sequence, strings.TrimSuffix(id, ":"+string(why)))
		s.m.did("dead letter")
	}
	if !bytes.Equal(msg.Data, body) {
		s.m.violate("the dead letter %s has another payload", id)
	}
}

// receiveResult handles a result or a part of one. known is set if the stream has a message with its id.
func (s *modelServer) receiveResult(w *leaseWorker, e *modelLease, sequence uint64, id string, msg *nats.Msg, known bool) {
	in := s.m.input(sequence)
	sent, _ := strconv.Atoi(msg.Header.Get(modelSentHeader)) // 0 without the header
	first := msg.Header.Get(results.HeaderDeliveries) == ""
	if at, stored := s.storedAt[sequence]; first && stored && at < sent && !s.isForgotten(e, sequence) {
		s.m.violate("%s publishes input %d as one that was never delivered before, and it has had a result since step %d", w.id, sequence, at)
	}
	if strings.Contains(id, "/") {
		s.m.did("part")
	}
	if size := msg.Size() - len(msg.Subject); size > int(w.maxPayload) {
		s.m.violate("a result of input %d has %d bytes, and the server accepts %d", sequence, size, w.maxPayload)
	}
	if known {
		s.m.did("stored again")
		return
	}
	parts, err := s.collector.Add(msg.Header, msg)
	switch {
	case err != nil:
		s.m.violate("a reader of the results can't read input %d: %v", sequence, err)
	case parts == nil:
		return
	case in.framed:
		if statuses := s.wantStatuses(sequence, in, parts); s.m.stateful() != nil {
			s.values[sequence] = modelValues{statuses, parts}
		} else if statuses != nil {
			s.wantParts(sequence, in, parts, table.Reference(s.m.operators, in.records, statuses))
		}
	case in.fails[0] || in.lethal[0] || in.large:
		s.m.violate("input %d has a result, and can't be computed", sequence)
	case s.m.stateful() != nil:
		s.values[sequence] = modelValues{make([]record.Status, 1), parts}
	case !bytes.Equal(msg.Data, table.Reference(s.m.operators, in.records, nil).AppendSingle(nil, operator.Binary)):
		s.m.violate("input %d has a wrong result", sequence)
	}
	s.store(sequence, id)
}

// wantStatuses checks which records of a frame have results, and returns their statuses. Every other record must have an error and a
// stored dead letter. It returns nil if the number of records is wrong.
func (s *modelServer) wantStatuses(sequence uint64, in *modelInput, parts []*nats.Msg) []record.Status {
	if n := parts[0].Header.Get(results.HeaderRecords); n != strconv.Itoa(len(in.records)) {
		s.m.violate("the result of input %d has %s records, want %d", sequence, n, len(in.records))
		return nil
	}
	statuses := make([]record.Status, len(in.records))
	for i := range in.records {
		letter, ok := s.letters[modelRecord{sequence, i}]
		switch {
		case letter == record.DeviceFault: // already checked by storeLetter
			statuses[i] = record.DeviceFault
		case in.fails[i]:
			statuses[i] = record.OperatorError
		case in.lethal[i]:
			s.m.violate("record %d of input %d has a result, and kills the worker that computes it", i, sequence)
		}
		if failed := statuses[i].Failed(); failed != ok || letter != statuses[i] {
			s.m.violate("record %d of input %d ends with %v and has the dead letter %v (%v)", i, sequence, statuses[i], letter, ok)
		}
	}
	return statuses
}

// wantParts checks the values in the parts of a frame's result.
func (s *modelServer) wantParts(sequence uint64, in *modelInput, parts []*nats.Msg, want *table.Table) {
	from := 0
	for n, part := range parts {
		to := len(in.records)
		if n+1 < len(parts) {
			to, _ = strconv.Atoi(parts[n+1].Header.Get(results.HeaderFirstRecord))
		}
		if err := want.Check(part.Data, operator.Binary, from, to); err != nil {
			s.m.violate("the result of input %d: %v", sequence, err)
		}
		from = to
	}
}

// store records that an input has a result or a dead letter. id is the same for both.
func (s *modelServer) store(sequence uint64, id string) {
	before, known := s.results[sequence]
	switch {
	case known && before != id:
		s.m.violate("input %d has results with the ids %q and %q", sequence, before, id)
	case known:
		s.m.did("stored again")
	default:
		s.m.did("stored")
		s.results[sequence], s.storedAt[sequence] = id, s.m.steps
	}
}

// storing returns the first input of the batch that the lease stores with msgs. It returns 0 if msgs are no results.
func (e *modelLease) storing(msgs []*nats.Msg) (first uint64) {
	if e == nil || len(msgs) == 0 || isLetter(msgs[0]) {
		return 0
	}
	return e.first
}

// stores records that the lease stores a batch.
func (e *modelLease) stores(g *inflight.Batch) {
	if e.first = 0; len(g.Items) > 0 {
		e.first = g.Items[0].Sequence
	}
}

// Store implements resultStore.
func (e *modelLease) Store(ctx context.Context, g *inflight.Batch, b *results.Buffers, sink results.Sink) error {
	e.stores(g)
	return e.Writer.Store(ctx, g, b, sink)
}

// Store implements resultStore.
func (c *modelCommits) Store(ctx context.Context, g *inflight.Batch, b *results.Buffers, sink results.Sink) error {
	c.e.stores(g)
	return c.Commits.Store(ctx, g, b, sink)
}
