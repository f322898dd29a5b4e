package publisher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// TestEveryPlaceOfTheWindowComesBack makes publishes fail on a connection in every possible way. Each failed publish
// must free its place in the window.
func TestEveryPlaceOfTheWindowComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	nc, w := r.proxied, r.windowed(300*time.Millisecond, r.proxied)
	l := w.conns[0]
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
		r.putAll(w, messages(0, 20, 10))
		want(what, nil, nil)
	}

	stored("stored")
	want("no stream", send("nowhere.a", 20, 10), failed)
	want("too large", send("results.a", 5, int(nc.MaxPayload())+1), is(nats.ErrMaxPayload))
	r.proxy.Lose(isAnswer)
	want("acknowledgement lost", send("results.a", 20, 10), is(jetstream.ErrAsyncPublishTimeout))
	inFlight := send("results.a", 20, 10)
	r.proxy.Refuse(true)
	want("disconnected in flight", inFlight, failed)
	r.disconnect()
	// The client buffers 8 MiB while it is disconnected. Messages beyond this limit fail at once, and all other
	// messages after the timeout.
	want("disconnected", send("results.a", 20, 1<<20), failed)
	r.proxy.Lose(nil)
	r.proxy.Refuse(false)
	r.Until("connected again", nc.IsConnected)
	stored("stored again")
	nc.Close()
	want("closed", send("results.a", 20, 10), is(nats.ErrConnectionClosed))
}

func TestWindowBoundsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.proxy.Lose(isAnswer)
	l := r.windowed(patience, r.proxied).conns[0]
	for range windowSize {
		if s := l.send(r.Ctx(), &nats.Msg{Subject: "results.a"}); s.err != nil {
			t.Fatal(s.err)
		}
	}
	if s := l.send(over(), &nats.Msg{Subject: "results.a"}); !errors.Is(s.err, context.Canceled) {
		t.Errorf("a publish beyond the window gave %v, want to wait until its context ended", s.err)
	}
}

// over returns a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// window returns a connection whose window has the given number of places.
func window(places int) *connection {
	return &connection{window: make(chan struct{}, places), gate: make(chan struct{}, 1), waiting: map[*nats.Msg]int{}}
}

// enter takes places for a message, which must be free.
func enter(t *testing.T, l *connection, m *nats.Msg) {
	t.Helper()
	if !l.enter(t.Context(), m) {
		t.Fatalf("no room for %d in a window of %d with %d taken", places(m), cap(l.window), len(l.window))
	}
}

func TestLargeMessagesTakeMorePlaces(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{0: 1, 100: 1, bytesPerPlace: 2, 64 << 10: 5, 70 << 20: windowSize} {
		if got := places(&nats.Msg{Data: make([]byte, size)}); got != want {
			t.Errorf("a message of %d bytes takes %d places, want %d", size, got, want)
		}
	}
	l, three, two := window(4), &nats.Msg{Data: make([]byte, 2*bytesPerPlace)}, &nats.Msg{Data: make([]byte, bytesPerPlace)}
	enter(t, l, three)
	if l.enter(over(), two) || len(l.window) != 3 {
		t.Errorf("%d places are taken, want the first message's three", len(l.window))
	}
	l.leave(three)
	if enter(t, l, two); len(l.window) != 2 {
		t.Errorf("%d places are taken, want the second message's two", len(l.window))
	}
}

func TestAPlaceIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	var first, second nats.Msg
	l := window(2)
	enter(t, l, &first)
	enter(t, l, &second)
	l.leave(&first)
	l.leave(&first) // would free the second message's place, or block
	if len(l.window) != 1 || len(l.waiting) != 1 {
		t.Errorf("%d places held by %d messages, want 1 by the second", len(l.window), len(l.waiting))
	}
}

// TestWhoGivesUpWaitingForPlacesGivesThemBack shows that a large message that waits for more places returns its
// places when its context ends.
func TestWhoGivesUpWaitingForPlacesGivesThemBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const taken = 2
		l, large := window(4), &nats.Msg{Data: make([]byte, 2*bytesPerPlace)} // needs 3 places
		for range taken {
			enter(t, l, &nats.Msg{})
		}
		ctx, giveUp := context.WithCancel(t.Context())
		entered := make(chan bool, 1)
		go func() { entered <- l.enter(ctx, large) }()
		synctest.Wait()
		giveUp()
		if <-entered {
			t.Error("it entered a window without room")
		}
		if n := len(l.window); n != taken || len(l.waiting) != taken || len(l.gate) != 0 {
			t.Errorf("%d places taken by %d messages, %d at the gate; want %d, %d and none", n, len(l.waiting), len(l.gate), taken, taken)
		}
	})
}

func TestWhatIsFoundOfAStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config  jetstream.StreamConfig
		version string
		batches bool
		says    string
	}{
		{jetstream.StreamConfig{AllowBatchPublish: true}, "2.15.2", true, "one commit a batch"},
		{jetstream.StreamConfig{}, "2.14.0", false, "set allow_batched on the stream"},
		{jetstream.StreamConfig{AllowAtomicPublish: true}, "2.15.2", false, "not allow_atomic"},
		{jetstream.StreamConfig{}, "2.13.9", false, "upgrade it to 2.14"},
	} {
		got := judgeStream(c.config, c.version)
		if got.Batches != c.batches || !strings.Contains(got.String(), c.says) || (got.Advice == "") != c.batches ||
			ServerBatches(c.version) == strings.Contains(got.Advice, "upgrade") {
			t.Errorf("of %+v on server %s: %+v, want one that says %q", c.config, c.version, got, c.says)
		}
	}
}

// following opens a publisher that queries the stream before every Publish.
func (r *rig) following() (f *Following, found Capability, changes chan Capability) {
	r.Helper()
	changes = make(chan Capability, 100)
	f, found, err := Open(r.Ctx(), r.windowed(Timeout, r.Connect(r.URL)), Options{
		Stream: "RESULTS", Changed: func(c Capability) { changes <- c }, Trouble: r.note,
	})
	natstest.OK(r, err)
	f.every, f.doubtful = 0, 0
	return f, found, changes
}

// wantBatches checks whether the next messages are published in batches.
func (r *rig) wantBatches(f *Following, want bool) {
	r.Helper()
	if got := f.choose(r.Ctx()) == Publisher(f.batched); got != want {
		r.Errorf("messages are published in batches: %v, want %v", got, want)
	}
}

func (r *rig) wantChange(changes chan Capability, what string) {
	r.Helper()
	select {
	case c := <-changes:
		if !strings.Contains(c.String(), what) {
			r.Errorf("found %q, want %q", c, what)
		}
	default:
		r.Errorf("nothing new was found, want %q", what)
	}
}

func TestOpenFollowsTheStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, found, changes := r.following()
	if !found.Batches {
		t.Errorf("not in batches: %v", found)
	}
	r.wantBatches(f, true)
	r.put(f, messages(0, 10, 20), false)

	r.config.AllowBatchPublish = false
	r.Create(r.config)
	r.put(f, messages(10, 10, 20), false)
	r.wantChange(changes, "set allow_batched")
	r.wantBatches(f, false)

	r.Delete(r.config.Name)
	r.config.AllowBatchPublish = true
	f.ask(r.Ctx())
	r.wantChange(changes, "there is no stream")
	r.Create(r.config)
	r.putAll(f, messages(0, 30, 20))
	r.wantChange(changes, "one commit a batch")
	r.wantOnce(30, true)
}

func TestABatchThatFailsCastsDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, _, _ := r.following()
	f.every, f.doubtful = patience, patience // prevents queries during the test
	r.config.AllowBatchPublish = false
	r.Create(r.config)
	r.put(f, messages(0, 10, 20), false)
	r.wantTroubles(1, "a stream that takes no batches")
	r.put(f, messages(10, 10, 20), false)
	r.wantTroubles(1, "the next Put")
	r.wantBatches(f, false) // the stream was not asked again
	if f.Singles() != f.singles {
		t.Error("Singles is another publisher")
	}
	r.wantOnce(20, true)
}

func TestOpenWithoutTheStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Delete(r.config.Name)
	f, found, changes := r.following()
	if !found.Missing || found.Batches {
		t.Errorf("with no stream: %+v", found)
	}
	r.wantBatches(f, false)
	r.Create(r.config)
	r.putAll(f, messages(0, 10, 20))
	r.wantChange(changes, "one commit a batch")
	r.wantOnce(10, true)
}

func TestOpenFailsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if _, _, err := Open(over(), r.windowed(Timeout, r.proxied), Options{Stream: "RESULTS"}); err == nil {
		t.Error("a store was opened that asked nobody")
	}
	f, found, changes := r.following()
	f.ask(over())
	if last := f.last.Load().capability; last != found || !f.doubt.Load() || len(changes) != 0 {
		t.Errorf("a question without an answer made %+v of %+v", last, found)
	}
}
