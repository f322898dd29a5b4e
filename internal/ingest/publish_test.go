package ingest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/streams"
)

// wantNothingAcked checks that the server waits for the acknowledgement of all n inputs.
func (r *rig) wantNothingAcked(n int) {
	r.t.Helper()
	info := r.consumerInfo()
	if info.NumAckPending != n || info.AckFloor.Stream != 0 || r.tally.stored() != 0 {
		r.t.Errorf("%d of %d inputs unacknowledged, floor at %d, %d said to be stored; want all unacknowledged",
			info.NumAckPending, n, info.AckFloor.Stream, r.tally.stored())
	}
}

// notStored is what the worker logs when it has tried in vain.
const notStored = "results could not be stored"

func TestNothingIsAckedWhileTheResultStreamIsMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	config := r.streamConfig("RESULTS")
	r.deleteStream("RESULTS")
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Config{BatchPayloads: 10})
	r.log.await(t, notStored)
	until(t, "everything is delivered", func() bool { return r.consumerInfo().Delivered.Stream == n })
	r.wantNothingAcked(n)

	r.createStream(config)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

func TestNothingIsAckedWhileTheResultStreamIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	config := r.streamConfig("RESULTS")
	config.MaxMsgs, config.Discard = 10, jetstream.DiscardNew
	r.updateStream(config)
	const n = 40
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Config{})
	r.log.await(t, notStored)
	r.tally.awaitStored(t, 10)
	until(t, "everything is delivered", func() bool { return r.consumerInfo().Delivered.Stream == n })
	if info := r.consumerInfo(); info.NumAckPending < n-10 {
		t.Errorf("%d inputs unacknowledged with room for 10 results, want at least %d", info.NumAckPending, n-10)
	}

	config.MaxMsgs = -1
	r.updateStream(config)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

// What waits in the client's queue while results cannot be stored is delivered again after every AckWait, though
// nobody has tried it: that must not take it to the dead letters.
func TestWaitingForAFullResultStreamIsNoReasonToGiveUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.MaxDeliver, r.opts.AckWait = 1, time.Second
	r.provision()
	config := r.streamConfig("RESULTS")
	config.MaxMsgs, config.Discard = 10, jetstream.DiscardNew
	r.updateStream(config)
	const n = 2000
	short := func(i int) []byte { return document(i)[:min(len(document(i)), 20)] } // one pull request holds them all, and more
	r.publish(n, short)
	run := r.run(hostDevice(t), streams.Config{Lanes: 1, BatchPayloads: 10})
	until(t, "some of what waits is delivered again", func() bool {
		return r.consumerInfo().Delivered.Consumer > n+200
	})

	config.MaxMsgs = -1
	r.updateStream(config)
	r.tally.await(t, Published, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, short)
	if given := r.tally.count(DeadLettered); given != 0 {
		t.Errorf("%d payloads were dead-lettered that had only waited", given)
	}
}

func TestLostPublishAcksArePublishedAgainAndStoredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	p := r.behindProxy()
	acks := 0
	p.losing(func(_ string, body []byte) bool {
		if !isPubAck(body) {
			return false
		}
		acks++
		return acks%5 == 1
	})
	const n = 300
	r.publish(n, document)
	run := r.prepare(hostDevice(t), streams.Config{BatchPayloads: 100})
	run.publishWithin(100 * time.Millisecond)
	run.start()
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if again := r.tally.count(Duplicate); again < n/10 {
		t.Errorf("%d results were stored already when they were published again, want at least %d", again, n/10)
	}
	if left := len(run.worker.publisher.window); left != 0 {
		t.Errorf("%d places of the publish window are still held", left)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

// publishWithin makes the worker take an acknowledgement for lost after that time.
func (run *running) publishWithin(timeout time.Duration) {
	run.t.Helper()
	pub, err := newPatientPublisher(run.nc, timeout)
	if err != nil {
		run.t.Fatal(err)
	}
	run.worker.publisher = pub
}

// TestEveryPlaceOfTheWindowComesBack takes the publisher through the ways in which a publish can fail.
func TestEveryPlaceOfTheWindowComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	proxy := r.behindProxy()
	nc, err := Connect(Connection{URL: r.url}, "publisher", r.opts.Logger, r.tally)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p, err := newPatientPublisher(nc, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	send := func(subject string, n, size int) (sent []pending) {
		for range n {
			sent = append(sent, p.send(r.ctx(), &nats.Msg{Subject: subject, Data: make([]byte, size)}))
		}
		return sent
	}
	want := func(what string, sent []pending, ok func(error) bool) {
		t.Helper()
		for _, s := range sent {
			if _, err := p.wait(r.ctx(), s); !ok(err) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		until(t, what+": the window is empty", func() bool { return len(p.window) == 0 })
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

	want("stored", send("results.a", 20, 10), func(err error) bool { return err == nil })
	want("no stream", send("nowhere.a", 20, 10), is(jetstream.ErrNoStreamResponse))
	want("too large", send("results.a", 5, int(nc.MaxPayload())+1), is(nats.ErrMaxPayload))
	proxy.losing(func(_ string, body []byte) bool { return isPubAck(body) })
	want("acknowledgement lost", send("results.a", 20, 10), is(jetstream.ErrAsyncPublishTimeout))
	inFlight := send("results.a", 20, 10)
	proxy.refuse(true)
	want("disconnected in flight", inFlight, func(err error) bool { return err != nil })
	until(t, "disconnected", func() bool { return !nc.IsConnected() })
	// The client buffers 8 MiB while it is disconnected; what goes beyond fails at once, the rest in time.
	want("disconnected", send("results.a", 20, 1<<20), func(err error) bool { return err != nil })
	proxy.losing(nil)
	proxy.refuse(false)
	until(t, "connected again", nc.IsConnected)
	want("stored again", send("results.a", 20, 10), func(err error) bool { return err == nil })
	nc.Close()
	want("closed", send("results.a", 20, 10), is(nats.ErrConnectionClosed))
}

func TestWindowBoundsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	proxy := r.behindProxy()
	proxy.losing(func(_ string, body []byte) bool { return isPubAck(body) })
	nc, err := Connect(Connection{URL: r.url}, "publisher", r.opts.Logger, r.tally)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p, err := newPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	for range publishWindow {
		if s := p.send(r.ctx(), &nats.Msg{Subject: "results.a"}); s.err != nil {
			t.Fatal(s.err)
		}
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if s := p.send(over, &nats.Msg{Subject: "results.a"}); !errors.Is(s.err, context.Canceled) {
		t.Errorf("a publish beyond the window gave %v, want to wait until its context ended", s.err)
	}
}

func TestAPlaceIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	p := &publisher{window: make(chan struct{}, 2), waiting: map[*nats.Msg]struct{}{}}
	var first, second nats.Msg
	if !p.enter(t.Context(), &first) || !p.enter(t.Context(), &second) {
		t.Fatal("no room in an empty window")
	}
	p.leave(&first)
	p.leave(&first) // would take the second's place, or block
	if len(p.window) != 1 || len(p.waiting) != 1 {
		t.Errorf("%d places held by %d messages, want 1 by the second", len(p.window), len(p.waiting))
	}
}

func TestUnstorable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nats.ErrMaxPayload, true},
		{nats.ErrBadSubject, true},
		{&jetstream.APIError{ErrorCode: codeMessageTooLarge}, true},
		{&jetstream.APIError{ErrorCode: codeHeaderTooLarge}, true},
		{&jetstream.APIError{ErrorCode: 10077}, false}, // no room in the stream
		{jetstream.ErrAsyncPublishTimeout, false},
		{jetstream.ErrNoStreamResponse, false},
		{nats.ErrDisconnected, false},
	} {
		if got := unstorable(c.err); got != c.want {
			t.Errorf("unstorable(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
