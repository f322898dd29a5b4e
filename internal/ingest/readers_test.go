package ingest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// serversWords are headers of inputs that resemble status messages. A client could mistake a stored message for a
// status message if it has these headers and no payload.
var serversWords = []nats.Header{
	{"Status": {"409"}, "Description": {"Consumer Deleted"}},
	{"status": {"409"}, "description": {"Consumer Deleted"}},
	{"STATUS": {"409"}, "DESCRIPTION": {"Server Shutdown"}},
	{"sTaTuS": {"409"}, "Description": {"Leadership Change"}},
	{"Status": {"409", "100"}, "status": {"404"}},
	{"Status": {"100"}, "Description": {"Idle Heartbeat"}, "Nats-Last-Consumer": {"1"}, "Nats-Last-Stream": {"1"}},
	{"Status": {"100"}, "Description": {"FlowControl Request"}, "Nats-Consumer-Stalled": {"ingest.web.0"}},
	{"Status": {"404"}, "Description": {"No Messages"}},
	{"Status": {"408"}, "Nats-Pending-Messages": {"1000000"}, "Nats-Pending-Bytes": {"1000000"}},
	{"Status": {"423"}, "Description": {"Nats-Wrong-Pin-Id"}},
	{"Status": {"503"}},
	{"Status": {"400"}, "Description": {"Bad Request"}},
	{"Description": {"Consumer Deleted"}},
	{"nats-pin-id": {"forged"}, "NATS-PIN-ID": {"forged"}},
	{"nats-rollup": {"all"}, "NATS-TTL": {"1s"}, "nats-expected-last-sequence": {"0"}, "nats-msg-id": {"mine"}},
}

// TestReadersAreNotStopped uses inputs with these headers and without a payload. Each has a result once and a dead
// letter once. Every way of reading with nats.go must return all results and dead letters.
func TestReadersAreNotStopped(t *testing.T) {
	t.Parallel()
	for mode, partitions := range map[string]int{"shared": 0, "exclusive": 2} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxMsgSize: 800})
			r.provision()
			n := 0
			heavy := strings.Repeat("h", 700) // too large for the result stream
			for i, header := range serversWords {
				for _, extra := range []string{"", heavy} {
					h := nats.Header{"Word": {fmt.Sprint(i)}, "Heavy": {extra}}
					for key, values := range header {
						h[key] = values
					}
					if err := r.NC.PublishMsg(&nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%4), Header: h}); err != nil {
						t.Fatal(err)
					}
					n++
				}
			}
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.await(t, inflight.Published, n/2)
			r.tally.await(t, inflight.DeadLettered, n/2)
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			for _, stream := range []string{"RESULTS", deadStream} {
				for name, read := range readers {
					for i, h := range read(r, stream, len(serversWords)) {
						r.wantHarmless(fmt.Sprintf("%s, read with %s", stream, name), h, serversWords[i])
					}
				}
			}
		})
	}
}

// wantHarmless checks the header of a result or dead letter against the header of its input.
func (r *rig) wantHarmless(what string, h, input nats.Header) {
	r.Helper()
	for key := range h {
		if strings.EqualFold(key, "status") || strings.EqualFold(key, "description") || strings.HasPrefix(strings.ToLower(key), "nats-") && key != jetstream.MsgIDHeader {
			r.Errorf("%s: header %q passes through", what, key)
		}
	}
	if isLetter := h.Get(results.HeaderReason) != ""; !isLetter && h.Get(results.HeaderInput) != "" || isLetter && !slices.Equal(h[results.HeaderInput], results.Withheld(input)) {
		r.Errorf("%s: %s is %q, of an input with %v", what, results.HeaderInput, h[results.HeaderInput], input)
	}
}

// readers are functions that read the first n messages of a stream with nats.go, each in another way. They return the
// headers by index in serversWords. A reader that stops or receives an error fails the test.
var readers = map[string]func(r *rig, stream string, n int) map[int]nats.Header{
	"Consume": func(r *rig, stream string, n int) map[int]nats.Header {
		got := newHeaders(r, n)
		consuming, err := r.reader(stream).Consume(func(m jetstream.Msg) { got.add(m.Headers()) },
			jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { r.Errorf("Consume on %s: %v", stream, err) }))
		if err != nil {
			r.Fatal(err)
		}
		defer consuming.Stop()
		return got.await()
	},
	"Messages": func(r *rig, stream string, n int) map[int]nats.Header {
		messages, err := r.reader(stream).Messages()
		if err != nil {
			r.Fatal(err)
		}
		defer messages.Stop()
		got := newHeaders(r, n)
		for range n {
			m, err := messages.Next(jetstream.NextMaxWait(patience))
			if err != nil {
				r.Fatalf("Messages on %s: %v", stream, err)
			}
			got.add(m.Headers())
		}
		return got.await()
	},
	"Fetch": func(r *rig, stream string, n int) map[int]nats.Header {
		batch, err := r.reader(stream).Fetch(n, jetstream.FetchMaxWait(patience))
		if err != nil {
			r.Fatal(err)
		}
		got := newHeaders(r, n)
		for m := range batch.Messages() {
			got.add(m.Headers())
		}
		if batch.Error() != nil {
			r.Fatalf("Fetch from %s: %v", stream, batch.Error())
		}
		return got.await()
	},
	"the legacy Fetch": func(r *rig, stream string, n int) map[int]nats.Header {
		sub := r.legacy(func(js nats.JetStreamContext) (*nats.Subscription, error) {
			return js.PullSubscribe("", "", nats.BindStream(stream))
		})
		got := newHeaders(r, n)
		messages, err := sub.Fetch(n, nats.MaxWait(patience))
		if err != nil {
			r.Fatalf("Fetch from %s: %v", stream, err)
		}
		for _, m := range messages {
			got.add(m.Header)
		}
		return got.await()
	},
	"the legacy Subscribe": func(r *rig, stream string, n int) map[int]nats.Header {
		got := newHeaders(r, n)
		r.legacy(func(js nats.JetStreamContext) (*nats.Subscription, error) {
			return js.Subscribe("", func(m *nats.Msg) { got.add(m.Header) }, nats.BindStream(stream), nats.OrderedConsumer())
		})
		return got.await()
	},
}

func (r *rig) reader(stream string) jetstream.Consumer {
	r.Helper()
	c, err := r.JS.CreateConsumer(r.Ctx(), stream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// legacy subscribes with the client's older interface.
func (r *rig) legacy(subscribe func(nats.JetStreamContext) (*nats.Subscription, error)) *nats.Subscription {
	r.Helper()
	js, err := r.NC.JetStream()
	if err != nil {
		r.Fatal(err)
	}
	sub, err := subscribe(js)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may already be closed
	return sub
}

// headers collects the headers of n messages by index in serversWords.
type headers struct {
	r    *rig
	n    int
	mu   sync.Mutex
	by   map[int]nats.Header
	all  chan struct{}
	once sync.Once
}

func newHeaders(r *rig, n int) *headers {
	return &headers{r: r, n: n, by: map[int]nats.Header{}, all: make(chan struct{})}
}

func (c *headers) add(h nats.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var i int
	if _, err := fmt.Sscan(h.Get("Word"), &i); err != nil {
		c.r.Errorf("a message has no number: %v", h)
		return
	}
	c.by[i] = h
	if len(c.by) == c.n {
		c.once.Do(func() { close(c.all) })
	}
}

func (c *headers) await() map[int]nats.Header {
	c.r.Helper()
	select {
	case <-c.all:
	case <-time.After(patience):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.r.Fatalf("%d of %d messages were read: the reader was stopped", len(c.by), c.n)
	}
	return c.by
}
