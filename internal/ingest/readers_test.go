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
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
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

// forgedHeaders are header blocks with every header that the worker, the client library or the server reads.
// Publishers can send them in these forms: repeated, misspelled, and in blocks without a proper end. PIN stands for
// the pin of the partition's owner.
var forgedHeaders = []string{
	"NATS/1.0\r\nNats-Pin-Id: x\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: x\r\nNats-Pin-Id: y\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: PIN\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: PIN\r\nNats-Pin-Id: x\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id:\r\n\r\n",
	"NATS/1.0\r\nnats-pin-id: x\r\nNATS-PIN-ID: x\r\nNats-Pin-Id : x\r\n Nats-Pin-Id: x\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: x\r\n\r\nxx",   // the server's addition follows the end of the block
	"NATS/1.0\r\nA: b\r\n\r\nxx",             // the same without a visible pin
	"NATS/1.0\r\nNats-Pin-Id: x",             // the server's addition becomes part of the value
	"NATS/1.0\nNats-Pin-Id: x\n\nxx",         // other line endings
	"NATS/1.0\r\n\r\n",                       // empty block
	"no block at all",                        // unreadable for the client
	"NATS/1.0 423 Nats-Wrong-Pin-Id\r\n\r\n", // status messages from here on
	"NATS/1.0 409 Consumer Deleted\r\n\r\n",
	"NATS/1.0 409 Leadership Change\r\n\r\n",
	"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
	"NATS/1.0 503\r\n\r\n",
	"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 0\r\n\r\n",
	"NATS/1.0\r\nStatus: 423\r\nStatus: 409\r\nDescription: Consumer Deleted\r\nDescription: Message Size Exceeds MaxBytes\r\n\r\n",
	"NATS/1.0\r\nstatus: 409\r\nSTATUS: 409\r\ndescription: Consumer Deleted\r\n\r\n",
	"NATS/1.0\r\nNats-Pending-Messages: 1000000\r\nNats-Pending-Messages: -1\r\nNats-Pending-Bytes: 9223372036854775807\r\n\r\n",
	"NATS/1.0\r\nMillrace-Stream: OTHER\r\nMillrace-Sequence: 1\r\nMillrace-Sequence: 2\r\nmillrace-subject: a.b\r\nMillrace-Reason: too_large\r\n\r\n",
	"NATS/1.0\r\nNats-Stream: OTHER\r\nNats-Sequence: 1\r\nNats-Subject: a\r\nNats-Last-Consumer: 1\r\n\r\n",
	"NATS/1.0\r\ntraceparent: 00-zz-zz-01\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nTraceparent: x\r\ntracestate: =,=,\r\n\r\n",
}

// TestForgedHeadersSteerNothing publishes every header block with and without a payload, among ordinary inputs,
// before and while a worker runs. Each input has exactly one result, and no lease restarts.
func TestForgedHeadersSteerNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = mode == "exclusive", 1
			r.provision()
			var payloads [][]byte
			publish := func(pin string) {
				var inputs []natstest.RawInput
				for i, block := range forgedHeaders {
					block = strings.ReplaceAll(block, "PIN", pin)
					for _, payload := range []string{"", fmt.Sprint("payload ", i), "ordinary"} {
						in := natstest.RawInput{Subject: "ingest.web.0", Header: block, Payload: []byte(payload)}
						if payload == "ordinary" {
							in.Header = ""
						}
						inputs = append(inputs, in)
						payloads = append(payloads, in.Payload)
					}
				}
				natstest.PublishRaw(t, r.workerURL, inputs...)
			}
			publish("nobody")
			run := r.run(hostDevice(t), streams.Options{})
			for range 5 {
				r.tally.awaitStored(t, len(payloads))
				pin := "nobody"
				if mode == "exclusive" {
					c := r.Consumer(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, 0))
					pin = c.CachedInfo().PriorityGroups[0].PinnedClientID
				}
				publish(pin)
			}
			r.tally.awaitStored(t, len(payloads))
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			found := r.stored("results.>")
			for i, payload := range payloads {
				of := found[uint64(i+1)]
				if len(of) != 1 {
					t.Fatalf("input %d has %d results, want 1", i+1, len(of))
				}
				if err := r.opts.Format.Check(r.opts.Operators, payload, of[0].Data()); err != nil {
					t.Errorf("result of input %d: %v", i+1, err)
				}
			}
			if len(found) != len(payloads) || r.tally.count(inflight.Duplicate) > 0 || r.tally.redelivered() > 0 {
				t.Errorf("%d results of %d inputs, %d duplicates, %d redeliveries", len(found), len(payloads), r.tally.count(inflight.Duplicate), r.tally.redelivered())
			}
			for _, bad := range []string{"beginning the partition anew", "pull interrupted"} {
				if r.Log.Has(bad) {
					t.Errorf("the log says %q", bad)
				}
			}
		})
	}
}
