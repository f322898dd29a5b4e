package lease

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
)

// TestWhatWasSettledIsAcknowledgedAgain redelivers a settled input. Its first acknowledgement was lost, so it is
// acknowledged again.
func TestWhatWasSettledIsAcknowledgedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	r.publish(1, document)
	src := r.shared(r.NC).newSource(t.Context())
	input := r.input()
	take := func() verdict { return natstest.Must(src.take(t.Context(), t.Context(), &input))(r) }
	if v := take(); v != newInput {
		t.Fatalf("a first delivery is %v", v)
	}
	src.ends.ledger.done(&input) // loses the acknowledgement
	input.NumDelivered = 2
	if v := take(); v != knownInput {
		t.Errorf("a second delivery of an input that is done is %v", v)
	}
	r.Until("the input is acknowledged", func() bool {
		info := r.consumer(0).CachedInfo()
		return info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == 1
	})
	if n := r.events.outcome(inflight.Duplicate); n != 1 {
		t.Errorf("%d duplicates were told of, want 1", n)
	}
}

// TestWhatIsNotProcessedHoldsNoMemory covers a delete marker, an input that is in flight or settled already, and unread inputs.
func TestWhatIsNotProcessedHoldsNoMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	r.Publish(0, 1, func(int) *nats.Msg {
		return &nats.Msg{Subject: "ingest.web.0", Header: nats.Header{"Nats-Marker-Reason": {"MaxAge"}}}
	})
	r.publish(1, document)
	src := r.shared(r.NC).newSource(t.Context())
	admit := func(name string, d inflight.Delivery, want bool) inflight.Delivery {
		t.Helper()
		before := src.o.Pool.Memory().Used
		natstest.Must(src.take(t.Context(), t.Context(), &d))(r)
		if held := src.o.Pool.Memory().Used > before; held != want {
			t.Errorf("%s: it holds memory: %v; want %v", name, held, want)
		}
		return d
	}
	admit("a delete marker", r.input(), false)
	input := r.input()
	first := admit("an input", input, true)
	input.NumDelivered = 2
	admit("an input in flight", input, false)
	src.ends.ledger.done(&first)
	admit("a settled input", input, false)
	before := src.o.Pool.Memory().Used
	r.publish(1, document)
	unread := admit("an unread input", r.input(), true)
	src.ends.leave(unread)
	src.ends.giveBackUnread()
	if used := src.o.Pool.Memory().Used; used != before {
		t.Errorf("%d bytes are held for unread inputs", used-before)
	}
	if !src.ends.ledger.gaveBack(&unread) {
		t.Error("an unread input isn't given back")
	}
}

// TestBacklogCountsWhatIsUnderWay shows that the worker reports the number of delivered, unacknowledged messages besides the number of
// waiting messages. An autoscaler needs both.
func TestBacklogCountsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	r.publish(5, document)
	r.input()
	r.input()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	m := r.shared(r.NC)
	go func() { defer close(done); m.watch.run(ctx) }()
	r.Until("three messages wait and two are under way", func() bool { return r.events.waiting() == 3 && r.events.underWay() == 2 })
	stop()
	<-done
}

// TestADeadLetterIsNoDuplicateOfItsResult publishes a dead letter for a payload with a stored result, as if every
// acknowledgement was lost. A stream for both must not drop the dead letter as a duplicate.
func TestADeadLetterIsNoDuplicateOfItsResult(t *testing.T) {
	t.Parallel()
	at := natstest.New(t)
	stream, err := at.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOn(at, 0)
	payload := someBytes(10)
	r.publish(1, payload)
	ends := r.shared(r.NC).ends
	input := r.input()
	result := &nats.Msg{Subject: "results.web.0", Header: results.ResultHeader(&input, results.OperatorNames(r.ops))}
	if _, err := r.JS.PublishMsg(r.Ctx(), result); err != nil {
		t.Fatal(err)
	}
	if !ends.DeadLetter(r.Ctx(), &input, results.MaxDeliver, errors.New("delivered too often")) {
		t.Fatal("the dead letter was not stored")
	}
	if info, err := stream.Info(r.Ctx()); err != nil || info.State.Msgs != 2 {
		t.Fatalf("the stream has %d messages (%v), want the result and the dead letter", info.State.Msgs, err)
	}
	m, err := stream.GetLastMsgForSubject(r.Ctx(), "deadletter.>")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(m.Subject, "deadletter.") || m.Header.Get(results.HeaderSequence) != "1" || !bytes.Equal(m.Data, payload(0)) {
		t.Errorf("the dead letter on %q of input %q is not the payload", m.Subject, m.Header.Get(results.HeaderSequence))
	}
}

// TestADeadLetterThatFindsNoPlaceIsGivenBack ends the drain while the maximum number of dead letters is being
// published. A waiting input is given back, and its memory is freed.
func TestADeadLetterThatFindsNoPlaceIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	r.publish(1, document)
	m := r.shared(r.NC)
	d := r.input()
	if !m.o.Pool.Hold(t.Context(), nil, &d) {
		t.Fatal("no memory")
	}
	for range deadLetterWindow {
		m.ends.deadLetters <- struct{}{}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	natstest.OK(r, m.ends.giveUp(over, over, d, results.MaxDeliver, errors.New("delivered too often")))
	if used := m.o.Pool.Memory().Used; used != 0 {
		t.Errorf("it still holds %d bytes", used)
	}
	if again := r.input(); again.Sequence != d.Sequence || again.NumDelivered != 2 {
		t.Errorf("input %d comes, delivery %d, want it again", again.Sequence, again.NumDelivered)
	}
}

func TestLedgerKnowsInputsInFlightAndSettledOnes(t *testing.T) {
	l := newLedger(0)
	at := time.Unix(1000, 0)
	first := &inflight.Delivery{Sequence: 7, Stored: at, NumDelivered: 1}
	again := &inflight.Delivery{Sequence: 7, Stored: at, NumDelivered: 9}
	// A recreated stream restarts its sequences.
	other := &inflight.Delivery{Sequence: 7, Stored: at.Add(time.Hour), NumDelivered: 2}

	want := func(d *inflight.Delivery, v verdict, when string) {
		t.Helper()
		if got := l.take(d); got != v {
			t.Errorf("%s: %v, want %v", when, got, v)
		}
	}
	want(first, newInput, "a first delivery")
	want(again, heldInput, "a second while the first is in hand")
	want(other, newInput, "of another stream's message with the sequence of one in hand")
	l.giveBack(other)
	want(first, newInput, "a first delivery after that was given back")
	l.giveBack(first)
	if !l.gaveBack(again) || l.gaveBack(other) {
		t.Error("it is not known which of two was given back")
	}
	want(again, newInput, "after it was given back")
	l.done(again)
	want(again, knownInput, "after it was settled")
	want(first, newInput, "a first delivery after that, by a consumer made anew")
	l.giveBack(first)
	want(other, newInput, "of another stream's message with that sequence")
	l.done(other)
	want(other, knownInput, "after that was settled")
}

func TestLedgerReportsWhenFewInputsAreInFlight(t *testing.T) {
	l := newLedger(0)
	one, two := &inflight.Delivery{Sequence: 1}, &inflight.Delivery{Sequence: 2}
	l.take(one)
	l.take(two)
	waited := make(chan error, 1)
	go func() { waited <- l.await(t.Context(), 1) }()
	l.done(one)
	if err := <-waited; err != nil {
		t.Errorf("one is held, and waiting for that ended with %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.await(gone, 0); err == nil {
		t.Error("one is held, and waiting for none ended without an error")
	}
	l.giveBack(two)
	if err := l.await(gone, 0); err != nil {
		t.Errorf("none is held, and waiting for that ended with %v", err)
	}
}

func TestLedgerIsBounded(t *testing.T) {
	l := newLedger(0)
	const n = 3 * remembered
	for i := range uint64(n) {
		d := &inflight.Delivery{Sequence: i}
		l.take(d)
		l.done(d)
	}
	if len(l.finished) != remembered || len(l.order) != remembered || len(l.held) != 0 {
		t.Errorf("%d settled, %d in order, %d held, want %d, %d, 0", len(l.finished), len(l.order), len(l.held), remembered, remembered)
	}
	if l.take(&inflight.Delivery{Sequence: n - remembered, NumDelivered: 2}) != knownInput {
		t.Error("the oldest that should be remembered is not")
	}
	if l.take(&inflight.Delivery{Sequence: n - remembered - 1, NumDelivered: 2}) != newInput {
		t.Error("one more than should be remembered is")
	}
}
