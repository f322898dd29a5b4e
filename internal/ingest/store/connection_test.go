package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
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
	publish := func(subject string, n, size int) func() []Answer {
		msgs := messages(0, n, size)
		for _, m := range msgs {
			m.Subject = subject
		}
		done := make(chan []Answer, 1)
		go func() { done <- w.Publish(r.Ctx(), msgs, nil) }()
		return func() []Answer { return <-done }
	}
	want := func(what string, answers []Answer, ok func(error) bool) {
		t.Helper()
		r.wantErrors(answers, len(answers), what, ok)
		r.wantRoom(w)
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	failed := func(err error) bool { return err != nil }

	r.putAll(w, messages(0, 20, 10)) // on a loaded machine, an answer may be late
	want("no stream", publish("nowhere.a", 20, 10)(), failed)
	want("too large", publish("results.a", 5, int(nc.MaxPayload())+1)(), is(nats.ErrMaxPayload))
	want("a long subject", publish("results."+strings.Repeat("a", MaxSubject), 5, 10)(), is(errLongSubject))
	r.proxy.Lose(isAnswer)
	want("acknowledgement lost", publish("results.a", 20, 10)(), is(jetstream.ErrAsyncPublishTimeout))
	before := nc.Stats().OutMsgs
	inFlight := publish("results.a", 20, 10)
	r.Until("all are sent", func() bool { return nc.Stats().OutMsgs == before+20 })
	r.disconnect()
	want("disconnected in flight", inFlight(), failed)
	// The client buffers 8 MiB while it is disconnected. Messages beyond this limit fail at once, and all other
	// messages after the timeout.
	want("disconnected", publish("results.a", 20, 1<<20)(), failed)
	r.proxy.Lose(nil)
	r.proxy.Refuse(false)
	r.Until("connected again", nc.IsConnected)
	r.putAll(w, messages(0, 20, 10))
	nc.Close()
	want("closed", publish("results.a", 20, 10)(), is(nats.ErrConnectionClosed))
}

// TestWindowBoundsWhatIsOnItsWay loses all answers, so a Publish of twice the window waits with the first half in flight. These
// messages keep their places after the end of their context, because the server may still store them.
func TestWindowBoundsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.proxy.Lose(isAnswer)
	w := r.windowed(2*time.Second, r.proxied)
	ctx, cancel := context.WithCancel(r.Ctx())
	done := make(chan []Answer)
	go func() { done <- w.Publish(ctx, messages(0, 2*windowSize, 20), nil) }()
	r.Until("the window is full", func() bool { return r.stored() == windowSize })
	isEnd := func(err error) bool { return errors.Is(err, context.Canceled) }
	r.wantErrors(w.Publish(over(), messages(0, 1, 20), nil), 1, "beyond the window", isEnd)
	cancel()
	r.wantErrors(<-done, 2*windowSize, "the context has ended", isEnd)
	if w.conns[0].window.TryAcquire(1) {
		t.Error("a message without an answer has lost its place")
	}
	r.wantRoom(w)
	if n := r.stored(); n != windowSize {
		t.Errorf("%d messages are stored, want those in the window", n)
	}
}

// TestMoreThanTheWindow publishes several times the window concurrently, with messages that take several places.
func TestMoreThanTheWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.windowed(patience, r.proxied)
	const n, writers = 2000, 3 // each message takes 3 places
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { r.put(w, messages(i*n, n, 2*bytesPerPlace), false) })
	}
	wg.Wait()
	r.wantOnce(writers*n, false)
	r.wantRoom(w)
}

// over returns a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestLargeMessagesTakeMorePlaces(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int64{0: 1, 100: 1, bytesPerPlace: 2, 64 << 10: 5, 70 << 20: windowSize} {
		if got := places(&nats.Msg{Data: make([]byte, size)}); got != want {
			t.Errorf("a message of %d bytes takes %d places, want %d", size, got, want)
		}
	}
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
			t.Errorf("the capability of %+v on server %s is %+v, want one that says %q", c.config, c.version, got, c.says)
		}
	}
}

// following opens a publisher that queries the stream before every Publish.
func (r *rig) following() (f *Following, changes chan Capability) {
	r.Helper()
	changes = make(chan Capability, 100)
	f = natstest.Must(Follow(r.Ctx(), r.windowed(Timeout, r.Connect(r.URL)), r.options(changes)))(r)
	f.every, f.doubtful = 0, 0
	return f, changes
}

// wantBatches checks whether the next messages are published in batches.
func (r *rig) wantBatches(f *Following, want bool) {
	r.Helper()
	if got := !f.doubt.Load() && f.last.Load().capability.Batches; got != want {
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
	f, changes := r.following()
	r.wantChange(changes, "one commit a batch")
	r.put(f, messages(0, 10, 20), false)
	r.wantBatches(f, true)

	r.config.AllowBatchPublish = false
	r.Create(r.config)
	r.put(f, messages(10, 10, 20), false)
	r.wantChange(changes, "set allow_batched")
	r.wantBatches(f, false)

	r.Delete(r.config.Name)
	r.config.AllowBatchPublish = true
	natstest.OK(t, f.ask(r.Ctx()))
	r.wantChange(changes, "there is no stream")
	r.wantBatches(f, false)
	r.Create(r.config)
	r.putAll(f, messages(0, 30, 20))
	r.wantChange(changes, "one commit a batch")
	r.wantOnce(30, true)
}

func TestABatchThatFailsCastsDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, _ := r.following()
	f.every, f.doubtful = patience, patience // prevents queries during the test
	r.config.AllowBatchPublish = false
	r.Create(r.config)
	r.put(f, messages(0, 10, 20), false)
	r.wantTroubles(1, "a stream that takes no batches")
	r.put(f, messages(10, 10, 20), false)
	r.wantTroubles(1, "the next Put")
	r.wantBatches(f, false) // the stream was not queried again
	r.wantOnce(20, true)
}

func TestADoubtQueriesTheStreamSooner(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, changes := r.following()
	r.wantChange(changes, "one commit a batch")
	f.every = patience
	r.config.AllowBatchPublish = false
	r.Create(r.config)
	f.Refresh(r.Ctx(), false)
	if len(changes) > 0 {
		t.Error("without a doubt, the stream was queried again")
	}
	f.Refresh(r.Ctx(), true)
	r.wantChange(changes, "set allow_batched")
}

func TestOpenWithoutTheStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Delete(r.config.Name)
	f, changes := r.following()
	if found := f.last.Load().capability; !strings.Contains(found.Found, "there is no stream") || found.Batches || !f.doubt.Load() {
		t.Errorf("with no stream: %+v", found)
	}
	r.wantChange(changes, "there is no stream")
}

func TestOpenFailsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if _, err := Follow(over(), r.windowed(Timeout, r.proxied), r.options(nil)); err == nil {
		t.Error("Follow succeeded without a query")
	}
	f, changes := r.following()
	found := f.last.Load().capability
	<-changes
	if err := f.ask(over()); err == nil || f.last.Load().capability != found || !f.doubt.Load() || len(changes) != 0 {
		t.Errorf("a query without an answer changed the capability to %+v from %+v", f.last.Load().capability, found)
	}
}
