package publisher

import (
	"bytes"
	"errors"
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

type rig struct {
	*natstest.Rig
	config jetstream.StreamConfig
}

// newRig creates the stream, which allows batch publish unless change disables that.
func newRig(t testing.TB, change func(*jetstream.StreamConfig)) *rig {
	t.Helper()
	r := &rig{Rig: natstest.New(t), config: jetstream.StreamConfig{
		Name: "RESULTS", Subjects: []string{"results.>"}, Storage: jetstream.FileStorage, AllowBatchPublish: true,
	}}
	if change != nil {
		change(&r.config)
	}
	r.Create(r.config)
	return r
}

func (r *rig) windowed(timeout time.Duration, conns ...*nats.Conn) *Windowed {
	r.Helper()
	w, err := NewWindowed(jsapi.API{}, timeout, conns...)
	if err != nil {
		r.Fatal(err)
	}
	return w
}

// troubles receives the errors of unconfirmed batches.
type troubles chan error

func newTroubles() troubles { return make(troubles, 1<<12) }

func (c troubles) note(err error) { c <- err }

// both runs a test with each kind of publisher over a connection through a proxy. Only a publisher with batches
// reports to troubles.
func both(t *testing.T, change func(*jetstream.StreamConfig), timeout time.Duration, test func(r *rig, l *natstest.Proxy, s Publisher, c troubles)) {
	for _, kind := range []string{"windowed", "batched"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r, c := newRig(t, change), newTroubles()
			l := r.Proxy()
			singles := r.windowed(timeout, r.Connect(l.URL()))
			var s Publisher = singles
			if kind == "batched" {
				s = NewBatched(singles, c.note)
			}
			test(r, l, s, c)
		})
	}
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
func (r *rig) putAll(s Publisher, msgs []*nats.Msg) (duplicates int) {
	r.Helper()
	ctx := r.Ctx()
	for len(msgs) > 0 {
		var left []*nats.Msg
		for i, a := range s.Publish(ctx, msgs, nil) {
			switch {
			case ctx.Err() != nil:
				r.Fatalf("after %v %d messages are still not stored, the last error is %v", patience, len(msgs), a.Err)
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

// wantStored checks that there are n answers without errors.
func (r *rig) wantStored(answers []Answer, n int) {
	r.Helper()
	if len(answers) != n {
		r.Fatalf("%d answers to %d messages", len(answers), n)
	}
	for i, a := range answers {
		if a.Err != nil {
			r.Fatalf("message %d: %v", i, a.Err)
		}
	}
}

// wantOnce checks that the stream holds exactly the messages with the numbers from 0 to n-1, each once. If inOrder is
// set, it also checks their order.
func (r *rig) wantOnce(n int, inOrder bool) {
	r.Helper()
	seen := make(map[string]int, n)
	next := 0
	for m := range r.all() {
		id := m.Headers().Get(jetstream.MsgIDHeader)
		seen[id]++
		if inOrder && id != "in:"+strconv.Itoa(next) {
			r.Fatalf("message %d in the stream is %q", next, id)
		}
		next++
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

func (r *rig) all() func(yield func(jetstream.Msg) bool) {
	return func(yield func(jetstream.Msg) bool) {
		c, err := r.JS.CreateConsumer(r.Ctx(), r.config.Name, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		if err != nil {
			r.Fatal(err)
		}
		for left := int(c.CachedInfo().NumPending); left > 0; {
			batch, err := c.Fetch(min(left, 1000), jetstream.FetchMaxWait(patience))
			if err != nil {
				r.Fatal(err)
			}
			got := 0
			for m := range batch.Messages() {
				got++
				if !yield(m) {
					return
				}
			}
			if err := errors.Join(batch.Error()); err != nil || got == 0 {
				r.Fatalf("reading the stream, %d left: %v", left, err)
			}
			left -= got
		}
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
