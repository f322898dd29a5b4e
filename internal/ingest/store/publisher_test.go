package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
)

func TestPutStoresInOrderAndOnce(t *testing.T) {
	t.Parallel()
	both(t, nil, Timeout, func(r *rig, s Publisher) {
		n := 0
		for _, size := range []int{1, 2, 3, 4, 5, 20000} {
			r.put(s, messages(n, size, 20), false)
			n += size
		}
		r.wantOnce(n, true)
		r.wantTroubles(0, "new messages")
		r.put(s, messages(0, 1000, 20), true)
		r.put(s, messages(n-500, 1000, 20), false) // known messages among new ones
		r.wantOnce(n+500, true)
		r.wantTroubles(0, "duplicates")
		if answers := s.Publish(r.Ctx(), nil, make([]Answer, 2)); len(answers) != 2 {
			r.Errorf("a Put of nothing after two answers gives %d", len(answers))
		}
	})
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, size, want int }{
		{1, maxBytes + 1, 1},
		{3, maxBytes, 1},
		{3, maxBytes / 2, 2},
		{maxMessages, 1, maxMessages},
		{maxMessages + 1, 1, maxMessages},
	} {
		if got := cut(messages(0, c.n, c.size)); got != c.want {
			t.Errorf("of %d messages of %d bytes the first batch has %d, want %d", c.n, c.size, got, c.want)
		}
	}
}

// TestUnstorableMessagesAmongOthers shows that a faulty message at any position doesn't prevent other messages from being stored.
func TestUnstorableMessagesAmongOthers(t *testing.T) {
	t.Parallel()
	const n, limit = 600, 200 << 10
	change := func(c *jetstream.StreamConfig) { c.MaxMsgSize = limit }
	both(t, change, Timeout, func(r *rig, s Publisher) {
		first := 0
		for _, at := range []int{0, n / 2, n - 1} {
			for what, spoil := range map[string]func(*nats.Msg){
				"larger than the stream takes": func(m *nats.Msg) { m.Data = make([]byte, limit+1) },
				"larger than the server takes": func(m *nats.Msg) { m.Data = make([]byte, 5<<20) },
				"with too large a header":      func(m *nats.Msg) { m.Header.Set("Large", strings.Repeat("x", 70<<10)) },
			} {
				before, msgs := r.stored(), messages(first, n, 20)
				first += n
				spoil(msgs[at])
				for i, a := range s.Publish(r.Ctx(), msgs, nil) {
					if bad := i == at; bad && !Unstorable(a.Err) || !bad && a.Err != nil {
						r.Errorf("%s at %d: message %d: %v", what, at, i, a.Err)
					}
				}
				if got := r.stored() - before; got != n-1 {
					r.Errorf("%s at %d: %d messages stored, want %d", what, at, got, n-1)
				}
			}
		}
		r.wantTroubles(0, "the messages' own faults")
	})
}

func TestStreamMissingThenCreated(t *testing.T) {
	t.Parallel()
	both(t, nil, Timeout, func(r *rig, s Publisher) {
		r.Delete(r.config.Name)
		is := func(err error) bool { return errors.Is(err, jetstream.ErrNoStreamResponse) }
		r.wantErrors(s.Publish(r.Ctx(), messages(0, 100, 20), nil), 100, "no stream", is)
		r.Create(r.config)
		r.putAll(s, messages(0, 100, 20))
		r.wantOnce(100, false)
	})
}

func TestStreamFullThenFreed(t *testing.T) {
	t.Parallel()
	change := func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 50, jetstream.DiscardNew }
	both(t, change, Timeout, func(r *rig, s Publisher) {
		msgs := messages(0, 200, 20)
		good := 0
		for _, a := range s.Publish(r.Ctx(), msgs, nil) {
			if a.Err == nil {
				good++
			} else if Unstorable(a.Err) {
				r.Fatalf("a full stream is taken for a fault of the message: %v", a.Err)
			}
		}
		if good != 50 || r.stored() != 50 {
			r.Errorf("%d messages said to be stored, %d are, want the 50 that there is room for", good, r.stored())
		}
		r.config.MaxMsgs = -1
		r.Create(r.config)
		r.putAll(s, msgs)
		r.wantOnce(200, false)
	})
}

// TestLostAnswers drops one in twenty of the server's answers, at random.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	both(t, nil, 200*time.Millisecond, func(r *rig, s Publisher) {
		dice := rand.New(rand.NewPCG(20, 1))
		lost := 0
		r.proxy.Lose(func(subject string, body []byte) bool {
			if !isAnswer(subject, body) || dice.IntN(20) != 0 {
				return false
			}
			lost++
			return true
		})
		const n, group, writers = 4000, 50, 4
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for first := w * group; first < n; first += writers * group {
					r.putAll(s, messages(first, group, 100))
				}
			})
		}
		wg.Wait()
		r.proxy.Lose(nil)
		if lost == 0 {
			r.Error("no answer was lost")
		}
		r.wantOnce(n, false)
		r.wantRoom(s)
	})
}

// wantRoom checks that every place of the window, and every place for a batch, is free.
func (r *rig) wantRoom(s Publisher) {
	r.Helper()
	singles, _ := s.(*Windowed)
	if b, ok := s.(batching); ok {
		singles = b.singles
		r.Until("no batch is in flight", func() bool { return len(b.batches) == 0 })
	}
	for _, c := range singles.conns {
		r.Until("the window is empty", c.isIdle)
	}
}

// isIdle reports whether all places of the window are free.
func (c *connection) isIdle() bool {
	idle := c.window.TryAcquire(windowSize)
	if idle {
		c.window.Release(windowSize)
	}
	return idle
}

// TestConnectionCutInTheMiddle repeatedly cuts the connection at the first answers to a Publish.
func TestConnectionCutInTheMiddle(t *testing.T) {
	t.Parallel()
	both(t, nil, time.Second, func(r *rig, s Publisher) {
		const n, rounds = 2000, 3
		for round := range rounds {
			begun := make(chan struct{})
			seen := 0
			r.proxy.Lose(func(subject string, body []byte) bool {
				if isAnswer(subject, body) {
					if seen++; seen == 2 {
						close(begun)
					}
				}
				return seen >= 2 // losing these answers would end the Publish before the connection is cut
			})
			var putting sync.WaitGroup
			putting.Go(func() { r.putAll(s, messages(round*n, n, 200)) })
			<-begun
			r.proxy.Cut()
			r.proxy.Lose(nil)
			putting.Wait()
		}
		r.wantOnce(rounds*n, false)
		r.wantRoom(s)
		if _, batched := s.(batching); batched && len(r.troubles) < rounds {
			r.Errorf("%d batches were not confirmed, and %d were cut", len(r.troubles), rounds)
		}
	})
}

func TestPutEndsWithItsContext(t *testing.T) {
	t.Parallel()
	both(t, nil, patience, func(r *rig, s Publisher) {
		r.proxy.Lose(isAnswer)
		ctx, cancel := context.WithCancel(context.Background())
		answered := make(chan []Answer)
		go func() { answered <- s.Publish(ctx, messages(0, 10, 20), nil) }()
		r.Until("something is stored", func() bool { return r.stored() > 0 })
		cancel()
		r.wantErrors(<-answered, 10, "the context has ended", func(err error) bool { return errors.Is(err, context.Canceled) })
		r.wantTroubles(0, "the end of a context")
	})
}

func TestAStoreNeedsAConnection(t *testing.T) {
	t.Parallel()
	if _, err := NewWindowed(jsapi.API{}, 0); err == nil {
		t.Error("NewWindowed succeeded without a connection")
	}
}

func TestUnstorable(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		nats.ErrMaxPayload: true, nats.ErrBadSubject: true,
		&jetstream.APIError{ErrorCode: codeMessageTooLarge}: true, &jetstream.APIError{ErrorCode: codeHeaderTooLarge}: true,
		&jetstream.APIError{ErrorCode: 10077}: false, // the stream is full
		jetstream.ErrAsyncPublishTimeout:      false, jetstream.ErrNoStreamResponse: false, nats.ErrDisconnected: false,
	} {
		if got := Unstorable(err); got != want {
			t.Errorf("Unstorable(%v) = %v, want %v", err, got, want)
		}
	}
}

func TestConnectionsTakeTurns(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	conns := []*nats.Conn{r.proxied, r.Connect(r.URL)}
	s := r.batching(r.windowed(Timeout, conns...))
	for i := range 4 {
		r.put(s, messages(i*10, 10, 20), false)
	}
	for i, nc := range conns {
		if sent := nc.Stats().OutMsgs; sent < 20 {
			t.Errorf("connection %d has sent %d messages, want half of the 40 at least", i, sent)
		}
	}
	r.wantOnce(40, true)
}

// TestWhatIsDownIsPassedOver shows that results are sent over working connections if there are any. No batch starts
// on a disconnected connection.
func TestWhatIsDownIsPassedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	up := r.Connect(r.URL)
	two, one := r.windowed(patience, r.proxied, up), r.windowed(patience, r.proxied)
	r.disconnect()
	for i := range 4 {
		if l := two.next(); l.nc != up {
			t.Error("next returned the connection that is down")
		}
		r.put(r.batching(two), messages(i*10, 10, 20), false)
	}
	r.wantOnce(40, true)
	if l := one.next(); l.nc != r.proxied {
		t.Error("next did not return the only connection")
	}
	if _, err := one.StoreFast(r.Ctx(), FastBatch{Messages: messages(0, 5, 20)}); !errors.Is(err, errDisconnected) {
		t.Errorf("a batch without a connection ended with %v, want an error before it begins", err)
	}
}
