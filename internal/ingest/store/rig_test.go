package store

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natstest"
)

// patience limits the wait for an event that must happen. No test sleeps for all of it.
const patience = natstest.Patience

// rig has a stream, and a connection through a proxy.
type rig struct {
	*natstest.Rig
	config   jetstream.StreamConfig
	proxy    *natstest.Proxy
	proxied  *nats.Conn
	troubles chan error // errors of unconfirmed batches
}

// newRig creates the stream, which allows batch publish unless change disables that.
func newRig(t testing.TB, change func(*jetstream.StreamConfig)) *rig {
	t.Helper()
	r := &rig{Rig: natstest.New(t), troubles: make(chan error, 1<<12), config: jetstream.StreamConfig{
		Name: "RESULTS", Subjects: []string{"results.>"}, Storage: jetstream.FileStorage, AllowBatchPublish: true,
	}}
	if change != nil {
		change(&r.config)
	}
	r.Create(r.config)
	r.proxy = r.Proxy()
	r.proxied = r.Connect(r.proxy.URL())
	return r
}

func (r *rig) windowed(timeout time.Duration, conns ...*nats.Conn) *Windowed {
	r.Helper()
	return natstest.Must(NewWindowed(jsapi.API{}, timeout, conns...))(r)
}

// batching publishes in batches, even if the stream's settings don't allow batches.
type batching struct{ *Following }

func (b batching) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	return b.publishBatches(ctx, msgs, dst)
}

func (r *rig) batching(singles *Windowed) batching {
	return batching{newFollowing(singles, r.options(nil))}
}

// options returns options that pass changes of the stream to changes.
func (r *rig) options(changes chan Capability) FollowOptions {
	return FollowOptions{
		Stream: "RESULTS", Changed: func(c Capability) { changes <- c }, Trouble: func(err error) { r.troubles <- err },
		Read: func(*jetstream.StreamInfo, time.Time) {},
	}
}

func (r *rig) wantTroubles(n int, what string) {
	r.Helper()
	if len(r.troubles) != n {
		r.Errorf("%s: %d batches are reported as not confirmed, want %d", what, len(r.troubles), n)
	}
}

// disconnect makes the proxied connection fail until the proxy accepts connections again.
func (r *rig) disconnect() {
	r.Helper()
	r.proxy.Refuse(true)
	r.Until("the connection is down", func() bool { return !r.proxied.IsConnected() })
}

// reconnect replaces the proxied connection.
func (r *rig) reconnect() {
	r.Helper()
	before := r.proxied.Stats().Reconnects
	r.proxy.Cut()
	r.Until("the client is connected again", func() bool { return r.proxied.Stats().Reconnects > before && r.proxied.IsConnected() })
}

// both runs a test with each kind of publisher over the proxied connection. Only a publisher with batches reports troubles.
func both(t *testing.T, change func(*jetstream.StreamConfig), timeout time.Duration, test func(r *rig, s Publisher)) {
	t.Run("windowed", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, change)
		test(r, r.windowed(timeout, r.proxied))
	})
	t.Run("batched", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, change)
		test(r, r.batching(r.windowed(timeout, r.proxied)))
	})
}

// messages returns n messages of size bytes, with ids from number first on.
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

// putAll publishes msgs repeatedly until each is stored, like a settler.
func (r *rig) putAll(s Publisher, msgs []*nats.Msg) {
	r.Helper()
	ctx := r.Ctx()
	for len(msgs) > 0 {
		var left []*nats.Msg
		for i, a := range s.Publish(ctx, msgs, nil) {
			if ctx.Err() != nil {
				r.Fatalf("after %v %d messages are still not stored, the last error is %v", patience, len(msgs), a.Err)
			}
			if a.Err != nil {
				left = append(left, msgs[i])
			}
		}
		msgs = left
	}
}

// put publishes msgs once. Each must be stored, and must be a duplicate if duplicates is set.
func (r *rig) put(s Publisher, msgs []*nats.Msg, duplicates bool) {
	r.Helper()
	answers := s.Publish(r.Ctx(), msgs, nil)
	if len(answers) != len(msgs) {
		r.Fatalf("%d answers to %d messages", len(answers), len(msgs))
	}
	for i, a := range answers {
		if a.Err != nil || duplicates && !a.Duplicate {
			r.Fatalf("message %d: %v, duplicate %v", i, a.Err, a.Duplicate)
		}
	}
}

// wantErrors checks that there are n answers with the given error.
func (r *rig) wantErrors(answers []Answer, n int, what string, is func(error) bool) {
	r.Helper()
	if len(answers) != n {
		r.Fatalf("%s: %d answers to %d messages", what, len(answers), n)
	}
	for i, a := range answers {
		if !is(a.Err) {
			r.Errorf("%s: message %d: %v", what, i, a.Err)
		}
	}
}

// wantOnce checks that the stream holds exactly the messages with the numbers from 0 to n-1, each once. If inOrder is
// set, it also checks their order.
func (r *rig) wantOnce(n int, inOrder bool) {
	r.Helper()
	config := jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}
	c := natstest.Must(r.JS.CreateConsumer(r.Ctx(), r.config.Name, config))(r)
	all := natstest.Must(c.Messages())(r)
	defer all.Stop()
	seen := make(map[string]int, n)
	for i := range c.CachedInfo().NumPending {
		id := natstest.Must(all.Next())(r).Headers().Get(jetstream.MsgIDHeader)
		seen[id]++
		if inOrder && id != "in:"+strconv.FormatUint(i, 10) {
			r.Fatalf("message %d in the stream is %q", i, id)
		}
	}
	for i := range n {
		if times := seen["in:"+strconv.Itoa(i)]; times != 1 {
			r.Errorf("message %d is stored %d times", i, times)
		}
	}
	if len(seen) != n {
		r.Errorf("the stream has %d ids, want %d", len(seen), n)
	}
}

func (r *rig) stored() int {
	r.Helper()
	return int(r.Stream(r.config.Name).CachedInfo().State.Msgs)
}

// isAnswer reports whether a message is the server's answer to a publish, or its report on a batch.
func isAnswer(_ string, body []byte) bool {
	return bytes.Contains(body, []byte(`"stream":"RESULTS"`)) || bytes.Contains(body, []byte(`"type":"ack"`))
}
