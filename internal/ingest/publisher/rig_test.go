package publisher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natstest"
)

// patience bounds how long a test waits for an event that must happen. No test sleeps for all of it.
const patience = natstest.Patience

// until is natstest.Until.
var until = natstest.Until

// rig has a server, a stream RESULTS on it, and a client to inspect it.
type rig struct {
	t      testing.TB
	server *embedded.Server
	js     jetstream.JetStream
	config jetstream.StreamConfig
}

// newRig creates the stream, which allows batch publish unless change disables it.
func newRig(t testing.TB, change func(*jetstream.StreamConfig)) *rig {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	r := &rig{t: t, server: server, config: jetstream.StreamConfig{
		Name: "RESULTS", Subjects: []string{"results.>"}, Storage: jetstream.FileStorage, AllowBatchPublish: true,
	}}
	if change != nil {
		change(&r.config)
	}
	if r.js, err = jetstream.New(r.connect()); err != nil {
		t.Fatal(err)
	}
	r.create()
	return r
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	r.t.Cleanup(cancel)
	return ctx
}

// create creates or changes the stream. The server confirms the removal of a stream before it deletes its files, and
// may be unable to create another of that name until then.
func (r *rig) create() {
	r.t.Helper()
	const codeNoStore = 10049
	until(r.t, "the stream is there", func() bool {
		_, err := r.js.CreateOrUpdateStream(r.ctx(), r.config)
		var api *jetstream.APIError
		if err != nil && !(errors.As(err, &api) && api.ErrorCode == codeNoStore) {
			r.t.Fatal(err)
		}
		return err == nil
	})
}

func (r *rig) remove() {
	r.t.Helper()
	if err := r.js.DeleteStream(r.ctx(), r.config.Name); err != nil {
		r.t.Fatal(err)
	}
}

// proxy returns a proxy in front of the server.
func (r *rig) proxy() *natstest.Proxy {
	r.t.Helper()
	return natstest.NewProxy(r.t, "127.0.0.1:0", strings.TrimPrefix(r.server.URL(), "nats://"))
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	return r.connectTo(r.server.URL())
}

func (r *rig) connectTo(url string) *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // tests cut connections on purpose
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

func (r *rig) windowed(timeout time.Duration, conns ...*nats.Conn) *Windowed {
	r.t.Helper()
	w, err := NewWindowed(timeout, conns...)
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

// troubles receives the errors of batches that weren't confirmed.
type troubles chan error

func newTroubles() troubles { return make(troubles, 1<<12) }

func (c troubles) note(err error) { c <- err }

// both runs a test with each kind of publisher over connections made by connect. troubles stays empty if the
// publisher has no batches.
func both(t *testing.T, change func(*jetstream.StreamConfig), timeout time.Duration, test func(r *rig, l *natstest.Proxy, s Publisher, c troubles)) {
	for _, kind := range []string{"windowed", "batched"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r, c := newRig(t, change), newTroubles()
			l := r.proxy()
			singles := r.windowed(timeout, r.connectTo(l.URL()))
			var s Publisher = singles
			if kind == "batched" {
				s = NewBatched(singles, c.note)
			}
			test(r, l, s, c)
		})
	}
}

// messages returns n messages with ids from number first on.
func messages(first, n, size int) []*nats.Msg {
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		body := make([]byte, size)
		copy(body, strconv.Itoa(first+i))
		msgs[i] = &nats.Msg{
			Subject: fmt.Sprintf("results.%d", i%3), Data: body,
			Header: nats.Header{jetstream.MsgIDHeader: {"in:" + strconv.Itoa(first+i)}},
		}
	}
	return msgs
}

// putAll publishes msgs repeatedly until each is stored, as a settler does.
func (r *rig) putAll(s Publisher, msgs []*nats.Msg) (duplicates int) {
	r.t.Helper()
	ctx := r.ctx()
	for len(msgs) > 0 {
		var left []*nats.Msg
		for i, a := range s.Publish(ctx, msgs, nil) {
			switch {
			case ctx.Err() != nil:
				r.t.Fatalf("after %v %d messages are still not stored, the last error is %v", 2*patience, len(msgs), a.Err)
			case a.Err != nil:
				left = append(left, msgs[i])
			case a.Duplicate:
				duplicates++
			}
		}
		msgs = left
	}
	return duplicates
}

// wantStored checks that no answer has an error.
func (r *rig) wantStored(answers []Answer, n int) {
	r.t.Helper()
	if len(answers) != n {
		r.t.Fatalf("%d answers to %d messages", len(answers), n)
	}
	for i, a := range answers {
		if a.Err != nil {
			r.t.Fatalf("message %d: %v", i, a.Err)
		}
	}
}

// wantOnce checks that the stream holds the messages numbered from 0 to n exactly once, and no others. With inOrder
// it also checks their order.
func (r *rig) wantOnce(n int, inOrder bool) {
	r.t.Helper()
	seen := make(map[string]int, n)
	next := 0
	for m := range r.all() {
		id := m.Headers().Get(jetstream.MsgIDHeader)
		seen[id]++
		if inOrder && id != "in:"+strconv.Itoa(next) {
			r.t.Fatalf("message %d in the stream is %q", next, id)
		}
		next++
	}
	for i := range n {
		if times := seen["in:"+strconv.Itoa(i)]; times != 1 {
			r.t.Errorf("message %d is stored %d times", i, times)
		}
	}
	if len(seen) != n {
		r.t.Errorf("the stream has %d ids, want %d", len(seen), n)
	}
}

// all yields the stream's messages.
func (r *rig) all() func(yield func(jetstream.Msg) bool) {
	return func(yield func(jetstream.Msg) bool) {
		c, err := r.js.CreateConsumer(r.ctx(), r.config.Name, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		if err != nil {
			r.t.Fatal(err)
		}
		for left := int(c.CachedInfo().NumPending); left > 0; {
			batch, err := c.Fetch(min(left, 1000), jetstream.FetchMaxWait(patience))
			if err != nil {
				r.t.Fatal(err)
			}
			got := 0
			for m := range batch.Messages() {
				got++
				if !yield(m) {
					return
				}
			}
			if err := errors.Join(batch.Error()); err != nil || got == 0 {
				r.t.Fatalf("reading the stream, %d left: %v", left, err)
			}
			left -= got
		}
	}
}

// stored returns the number of messages in the stream.
func (r *rig) stored() int {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), r.config.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// isAnswer reports whether a message is the server's answer to a publish, or reports the progress of a batch.
func isAnswer(_ string, body []byte) bool {
	return bytes.Contains(body, []byte(`"stream":"RESULTS"`)) || bytes.Contains(body, []byte(`"type":"ack"`))
}
