package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/history"
)

// The model of a chain has one partition. Its owners alternate, and a former owner may not have noticed its successor. Requests are
// lost or late, and answers are lost. The messages of a fast batch arrive in several parts, between the requests of other owners.
// In half of the runs the stream is nearly full. It then refuses messages in the middle of a fast batch and stores later ones.
// Every owner processes the inputs after the position that it finds.
//
// Every input must have at most one result. Unless the stream is nearly full, results must be in the order of their
// inputs. Every input that an owner considers settled must have a result.

var created = time.Unix(1_700_000_000, 0)

type modelMessage struct {
	subject string
	header  nats.Header
	marker  *Marker
	until   uint64 // last input of the batch that this message begins; otherwise 0
}

// modelStream is a stream that injects faults. It implements Markers.
type modelStream struct {
	t       *testing.T
	random  *rand.Rand
	way     Way
	faults  bool
	narrow  bool // whether the stream is nearly full
	stored  []modelMessage
	late    []func() // requests that arrive later
	open    []*modelBatch
	crash   func() // ends the owner at its next fault; may be nil
	results map[string]int
	newest  uint64 // highest input with a result
}

var errModel = errors.New("no answer")

func (s *modelStream) last() (at uint64) {
	for i, m := range s.stored {
		if m.marker != nil {
			at = uint64(i + 1)
		}
	}
	return at
}

// modelBatch is a fast batch that the server has begun. The server stores its remaining messages without a condition.
type modelBatch struct {
	id   uint64 // sequence of the last marker when the batch began
	rest []modelMessage
}

type write struct {
	way      Way
	expected uint64
	messages []modelMessage
}

// apply stores the first arriving messages of a request like a server. The remaining messages of a fast batch arrive
// later or never.
func (s *modelStream) apply(w write, arriving int) (uint64, error) {
	if w.way == Fast && s.end(w.expected) && s.random.IntN(2) == 0 {
		return 0, errModel
	}
	if last := s.last(); last != w.expected {
		return 0, &WrongLastError{Last: last}
	}
	if w.way != Fast && arriving < len(w.messages) {
		return 0, errModel
	}
	refused := false
	for i, m := range w.messages[:arriving] {
		refused = !s.store(m, w.way == Fast) || refused
		if refused && w.sentBehind(i) == i+1 {
			return 0, errModel // the remaining messages aren't sent
		}
	}
	if arriving == len(w.messages) && !refused {
		return uint64(len(s.stored)), nil
	}
	if arriving > 0 && arriving < len(w.messages) {
		s.open = append(s.open, &modelBatch{id: w.expected, rest: w.messages[arriving:w.sentBehind(arriving-1)]})
	}
	return 0, errModel
}

// sentBehind returns the number of messages of a batch that are sent before the server confirms message i.
func (w *write) sentBehind(i int) int {
	for sent := i + 1; sent < len(w.messages); sent++ {
		if sent == 1 || isLastPart(w.messages[sent].header) {
			return sent
		}
	}
	return len(w.messages)
}

// store stores a message and checks the invariants. It returns false if the stream refuses the message.
func (s *modelStream) store(m modelMessage, refusable bool) bool {
	if refusable && s.narrow && s.faults && s.random.IntN(8) == 0 {
		return false
	}
	s.stored = append(s.stored, m)
	if m.marker != nil || m.until > 0 {
		return true
	}
	id := IDOf(m.header)
	if s.results[id]++; s.results[id] > 1 {
		s.t.Fatalf("result %s is stored twice", id)
	}
	input := inputOf(m.subject)
	if input < s.newest && !s.narrow {
		s.t.Fatalf("the result of input %d is stored after that of %d", input, s.newest)
	}
	s.newest = input
	return true
}

// end ends the batch with the given id, and reports whether that batch existed.
func (s *modelStream) end(id uint64) bool {
	before := len(s.open)
	s.open = slices.DeleteFunc(s.open, func(b *modelBatch) bool { return b.id == id })
	return len(s.open) < before
}

// proceed stores more messages of the batches that the server has begun. It drops some of these batches.
func (s *modelStream) proceed() {
	s.open = slices.DeleteFunc(s.open, func(b *modelBatch) bool {
		for len(b.rest) > 0 && s.random.IntN(3) == 0 {
			s.store(b.rest[0], true)
			b.rest = b.rest[1:]
		}
		return len(b.rest) == 0 || s.random.IntN(8) == 0
	})
}

func (s *modelStream) Write(_ context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (uint64, error) {
	copied, results := *m, []modelMessage(nil)
	marker := modelMessage{marker: &copied}
	for _, each := range msgs {
		results = append(results, modelMessage{subject: each.Subject, header: each.Header})
	}
	if way != Fast {
		return s.send(write{way, expected, append(results, marker)})
	}
	if len(msgs) > 0 {
		if _, err := s.send(write{way, expected, append([]modelMessage{{until: m.Until}}, results...)}); err != nil {
			return 0, err
		}
	}
	return s.send(write{way, expected, []modelMessage{marker}})
}

// send sends a request. Some late requests arrive before it.
func (s *modelStream) send(w write) (uint64, error) {
	all := len(w.messages)
	for len(s.late) > 0 && s.random.IntN(2) == 0 {
		i := s.random.IntN(len(s.late))
		arrive := s.late[i]
		s.late = append(s.late[:i], s.late[i+1:]...)
		arrive()
	}
	s.proceed()
	fate := s.random.IntN(10)
	if !s.faults {
		fate = 9
	}
	if s.crash != nil && fate < 4 {
		s.crash()
	}
	switch fate {
	case 0:
		return 0, errModel // the request is lost
	case 1:
		_, _ = s.apply(w, all)
		return 0, errModel // the answer is lost
	case 2:
		_, _ = s.apply(w, s.random.IntN(all))
		return 0, errModel // only a part arrives
	case 3:
		s.late = append(s.late, func() { _, _ = s.apply(w, 1+s.random.IntN(all)) })
		return 0, errModel
	}
	return s.apply(w, all)
}

// read begins a request that reads the stream, and returns its error.
func (s *modelStream) read() error {
	s.proceed()
	if s.faults && s.random.IntN(10) == 0 {
		return errModel
	}
	return nil
}

func (s *modelStream) Last(context.Context) (StoredMarker, error) {
	err, at := s.read(), s.last()
	if err != nil || at == 0 {
		return StoredMarker{}, err
	}
	return StoredMarker{Marker: *s.stored[at-1].marker, At: at}, nil
}

func (s *modelStream) Next(_ context.Context, behind uint64, subject string) (uint64, nats.Header, error) {
	if err := s.read(); err != nil {
		return 0, nil, err
	}
	for i := behind; i < uint64(len(s.stored)); i++ {
		if s.stored[i].subject == subject {
			return i + 1, s.stored[i].header, nil
		}
	}
	return 0, nil, nil
}

func (s *modelStream) Begun(_ context.Context, behind, before uint64) (until uint64, err error) {
	if err := s.read(); err != nil {
		return 0, err
	}
	for _, m := range s.stored[behind:before] {
		until = max(until, m.until)
	}
	return until, nil
}

type modelOwner struct {
	*Chain
	next uint64
}

func position(input uint64) Position { return Position{Sequence: input, Stored: int64(input)} }

// result returns the messages of an input's result. Some results have several parts.
func result(input uint64) (msgs []*nats.Msg) {
	parts := 1 + input%3
	for part := uint64(1); part <= parts; part++ {
		h := nats.Header{jetstream.MsgIDHeader: {fmt.Sprint(input)}, HeaderPart: {fmt.Sprintf("%d/%d", part, parts)}}
		if part < parts {
			h.Set(jetstream.MsgIDHeader, fmt.Sprintf("%d/%d", input, part))
		}
		msgs = append(msgs, &nats.Msg{Subject: fmt.Sprint("results.", input), Header: h})
	}
	return msgs
}

// take begins a lease. It returns nil if that fails.
func (s *modelStream) take(ctx context.Context, owner string) *modelOwner {
	c, _, err := OpenChains(ctx, ChainOptions{Owner: owner, Created: created, Way: s.way, Again: always}, s, nil)
	if err != nil {
		return nil
	}
	at, _ := c.Found()
	return &modelOwner{c, at.Sequence + 1}
}

// step processes a few inputs and reports whether the lease continues. Some owners crash.
func (o *modelOwner) step(ctx context.Context, s *modelStream) bool {
	if ctx, s.crash = context.WithCancel(ctx); s.random.IntN(3) > 0 {
		s.crash()
		ctx, s.crash = context.WithoutCancel(ctx), nil
	}
	var inputs []uint64
	var msgs []*nats.Msg
	for n := 1 + s.random.IntN(4); n > 0; n-- {
		done, parts, err := o.Leftovers().Find(ctx, position(o.next), fmt.Sprint("results.", o.next), fmt.Sprint(o.next))
		if err != nil {
			return false
		}
		if !done {
			inputs = append(inputs, o.next)
			stored := func(m *nats.Msg) bool { return slices.Contains(parts, IDOf(m.Header)) }
			msgs = append(msgs, slices.DeleteFunc(result(o.next), stored)...)
		} else if len(msgs) > 0 && !s.narrow {
			s.t.Fatalf("input %d has a result, and %v have none", o.next, inputs)
		}
		o.next++
	}
	for len(inputs) > 0 {
		some := len(inputs)
		if s.random.IntN(3) == 0 {
			some = 1 + s.random.IntN(some)
		}
		upTo := 0
		for upTo < len(msgs) && inputOf(msgs[upTo].Subject) <= inputs[some-1] {
			upTo++
		}
		stored, err := o.Commit(ctx, Batch{Messages: msgs[:upTo], At: position(inputs[some-1])})
		if EndsChain(err) {
			return false
		}
		msgs = slices.Concat(without(msgs[:upTo], stored), msgs[upTo:])
		if err == nil {
			inputs = inputs[some:]
		}
	}
	return true
}

func without(msgs []*nats.Msg, stored []bool) (left []*nats.Msg) {
	for i, m := range msgs {
		if !stored[i] {
			left = append(left, m)
		}
	}
	return left
}

func inputOf(subject string) (input uint64) {
	_, _ = fmt.Sscanf(subject, "results.%d", &input)
	return input
}

// TestModelOfAChain runs random histories and alternates between both ways of storing.
func TestModelOfAChain(t *testing.T) {
	t.Parallel()
	stored := map[string]int{}
	bounds := history.Bounds{Min: 300, Max: 1000, MustHappen: []string{"atomic", "fast"}}
	history.Run(t, bounds, func(h *history.History) map[string]int {
		way, name := Atomic, "atomic"
		if h.Seed%4 < 2 {
			way, name = Fast, "fast"
		}
		n := 0
		synctest.Test(t, func(t *testing.T) { n = modelRun(t, h, way) })
		stored[name] += n
		stored[name+" runs"]++
		return map[string]int{name: n}
	})
	for _, name := range []string{"atomic", "fast"} {
		if runs := stored[name+" runs"]; runs > 30 && stored[name] < 30*runs {
			t.Errorf("%s: %d results in %d runs", name, stored[name], runs)
		}
	}
	t.Log(stored)
}

// modelRun runs concurrent owners, and finally one without faults. It returns the number of inputs with a result.
func modelRun(t *testing.T, h *history.History, way Way) int {
	ctx, s := t.Context(), &modelStream{t: t, random: rand.New(h), way: way, faults: true, narrow: h.Seed%2 == 0, results: map[string]int{}}
	var owners []*modelOwner
	for step := range 40 {
		if len(owners) == 0 || s.random.IntN(8) == 0 {
			if o := s.take(ctx, fmt.Sprint("owner-", step)); o != nil {
				owners = append(owners, o)
			}
			continue
		}
		i := s.random.IntN(len(owners))
		if !owners[i].step(ctx, s) {
			owners = append(owners[:i], owners[i+1:]...)
		}
	}
	s.faults = false
	last := s.take(ctx, "last")
	for range 10 {
		if !last.step(ctx, s) {
			t.Fatal("the last owner's lease ends")
		}
	}
	messages := 0
	for input := uint64(1); input < last.next; input++ {
		messages += len(result(input))
		for _, m := range result(input) {
			if s.results[IDOf(m.Header)] != 1 {
				t.Fatalf("message %s of input %d is stored %d times", IDOf(m.Header), input, s.results[IDOf(m.Header)])
			}
		}
	}
	if len(s.results) != messages {
		t.Fatalf("%d messages are stored, and %d inputs are settled", len(s.results), last.next-1)
	}
	return int(last.next - 1)
}
