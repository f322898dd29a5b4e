package publisher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestEveryPlaceOfTheWindowComesBack makes publishes fail on a connection in every possible way. Each failed publish
// must free its place in the window.
func TestEveryPlaceOfTheWindowComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.Proxy()
	nc := r.Connect(loss.URL())
	l := r.windowed(300*time.Millisecond, nc).conns[0]
	send := func(subject string, n, size int) (sent []sending) {
		for range n {
			sent = append(sent, l.send(r.Ctx(), &nats.Msg{Subject: subject, Data: make([]byte, size)}))
		}
		return sent
	}
	want := func(what string, sent []sending, ok func(error) bool) {
		t.Helper()
		for _, s := range sent {
			if a := s.wait(r.Ctx()); !ok(a.Err) {
				t.Fatalf("%s: %v", what, a.Err)
			}
		}
		r.Until(what+": the window is empty", func() bool { return len(l.window) == 0 })
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	failed := func(err error) bool { return err != nil }
	// On a loaded machine an answer may be late. The message is then sent again.
	stored := func(what string) {
		t.Helper()
		r.putAll(&Windowed{conns: []*connection{l}}, messages(0, 20, 10))
		r.Until(what+": the window is empty", func() bool { return len(l.window) == 0 })
	}

	stored("stored")
	want("no stream", send("nowhere.a", 20, 10), failed)
	want("too large", send("results.a", 5, int(nc.MaxPayload())+1), is(nats.ErrMaxPayload))
	loss.Lose(isAnswer)
	want("acknowledgement lost", send("results.a", 20, 10), is(jetstream.ErrAsyncPublishTimeout))
	inFlight := send("results.a", 20, 10)
	loss.Refuse(true)
	want("disconnected in flight", inFlight, failed)
	r.Until("disconnected", func() bool { return !nc.IsConnected() })
	// The client buffers 8 MiB while it is disconnected. Messages beyond this limit fail at once, and all other
	// messages after the timeout.
	want("disconnected", send("results.a", 20, 1<<20), failed)
	loss.Lose(nil)
	loss.Refuse(false)
	r.Until("connected again", nc.IsConnected)
	stored("stored again")
	nc.Close()
	want("closed", send("results.a", 20, 10), is(nats.ErrConnectionClosed))
}

func TestWindowBoundsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.Proxy()
	loss.Lose(isAnswer)
	l := r.windowed(patience, r.Connect(loss.URL())).conns[0]
	for range windowSize {
		if s := l.send(r.Ctx(), &nats.Msg{Subject: "results.a"}); s.err != nil {
			t.Fatal(s.err)
		}
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if s := l.send(over, &nats.Msg{Subject: "results.a"}); !errors.Is(s.err, context.Canceled) {
		t.Errorf("a publish beyond the window gave %v, want to wait until its context ended", s.err)
	}
}

func TestLargeMessagesTakeMorePlaces(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{0: 1, 100: 1, bytesPerPlace: 2, 64 << 10: 5, 70 << 20: windowSize} {
		if got := places(&nats.Msg{Data: make([]byte, size)}); got != want {
			t.Errorf("a message of %d bytes takes %d places, want %d", size, got, want)
		}
	}
	l := &connection{window: make(chan struct{}, 4), gate: make(chan struct{}, 1), waiting: map[*nats.Msg]int{}}
	three, two := &nats.Msg{Data: make([]byte, 2*bytesPerPlace)}, &nats.Msg{Data: make([]byte, bytesPerPlace)}
	if !l.enter(t.Context(), three) {
		t.Fatal("no room for three in a window of four")
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if l.enter(over, two) || len(l.window) != 3 {
		t.Errorf("%d places are taken, want the first message's three", len(l.window))
	}
	l.leave(three)
	if !l.enter(t.Context(), two) || len(l.window) != 2 {
		t.Errorf("%d places are taken, want the second message's two", len(l.window))
	}
}

func TestAPlaceIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	l := &connection{window: make(chan struct{}, 2), gate: make(chan struct{}, 1), waiting: map[*nats.Msg]int{}}
	var first, second nats.Msg
	if !l.enter(t.Context(), &first) || !l.enter(t.Context(), &second) {
		t.Fatal("no room in an empty window")
	}
	l.leave(&first)
	l.leave(&first) // would free the second message's place, or block
	if len(l.window) != 1 || len(l.waiting) != 1 {
		t.Errorf("%d places held by %d messages, want 1 by the second", len(l.window), len(l.waiting))
	}
}
