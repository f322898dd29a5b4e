package ingest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
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
	eachMode(t, 2, func(t *testing.T, r *rig) {
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
				check(r.TB, r.NC.PublishMsg(&nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%4), Header: h}))
				n++
			}
		}
		run := r.run(hostDevice(t), streams.Options{})
		r.tally.await(t, inflight.Published, n/2)
		r.tally.await(t, inflight.DeadLettered, n/2)
		run.finish()
		for _, stream := range []string{"RESULTS", deadStream} {
			for way := range readers {
				for i, h := range r.readAll(stream, way, len(serversWords)) {
					r.wantHarmless(fmt.Sprintf("%s, read with %s", stream, way), h, serversWords[i])
				}
			}
		}
	})
}

// wantHarmless checks the header of a result or dead letter against the header of its input.
func (r *rig) wantHarmless(what string, h, input nats.Header) {
	r.Helper()
	for key := range h {
		low := strings.ToLower(key)
		if low == "status" || low == "description" || strings.HasPrefix(low, "nats-") && key != jetstream.MsgIDHeader {
			r.Errorf("%s: header %q passes through", what, key)
		}
	}
	var withheld []string
	if h.Get(results.HeaderReason) != "" { // a dead letter
		withheld = results.Withheld(input)
	}
	if !slices.Equal(h[results.HeaderInput], withheld) {
		r.Errorf("%s: %s is %q, of an input with %v", what, results.HeaderInput, h[results.HeaderInput], input)
	}
}

// readers are functions that read the first n messages of a stream with nats.go, each in another way. They pass each
// header to add, and return a function that ends reading. A reader that receives an error fails the test.
var readers = map[string]func(r *rig, stream string, n int, add func(nats.Header)) (stop func()){
	"Consume": func(r *rig, stream string, _ int, add func(nats.Header)) func() {
		consuming, err := r.reader(stream).Consume(func(m jetstream.Msg) { add(m.Headers()) },
			jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { r.Errorf("Consume on %s: %v", stream, err) }))
		check(r.TB, err)
		return consuming.Stop
	},
	"Messages": func(r *rig, stream string, n int, add func(nats.Header)) func() {
		messages, err := r.reader(stream).Messages()
		check(r.TB, err)
		for range n {
			m, err := messages.Next(jetstream.NextMaxWait(patience))
			check(r.TB, err)
			add(m.Headers())
		}
		return messages.Stop
	},
	"Fetch": func(r *rig, stream string, n int, add func(nats.Header)) func() {
		batch, err := r.reader(stream).Fetch(n, jetstream.FetchMaxWait(patience))
		check(r.TB, err)
		for m := range batch.Messages() {
			add(m.Headers())
		}
		check(r.TB, batch.Error())
		return func() {}
	},
	"the legacy Fetch": func(r *rig, stream string, n int, add func(nats.Header)) func() {
		sub, stop := r.legacy(func(js nats.JetStreamContext) (*nats.Subscription, error) {
			return js.PullSubscribe("", "", nats.BindStream(stream))
		})
		messages, err := sub.Fetch(n, nats.MaxWait(patience))
		check(r.TB, err)
		for _, m := range messages {
			add(m.Header)
		}
		return stop
	},
	"the legacy Subscribe": func(r *rig, stream string, _ int, add func(nats.Header)) func() {
		_, stop := r.legacy(func(js nats.JetStreamContext) (*nats.Subscription, error) {
			return js.Subscribe("", func(m *nats.Msg) { add(m.Header) }, nats.BindStream(stream), nats.OrderedConsumer())
		})
		return stop
	},
}

func (r *rig) reader(stream string) jetstream.Consumer {
	r.Helper()
	c, err := r.JS.CreateConsumer(r.Ctx(), stream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	check(r.TB, err)
	return c
}

// legacy subscribes with the client's older interface.
func (r *rig) legacy(subscribe func(nats.JetStreamContext) (*nats.Subscription, error)) (sub *nats.Subscription, stop func()) {
	r.Helper()
	js, err := r.NC.JetStream()
	check(r.TB, err)
	sub, err = subscribe(js)
	check(r.TB, err)
	return sub, func() { _ = sub.Unsubscribe() } // an ordered consumer may just be recreated
}

// readAll reads the first n messages of a stream in one way. It returns their headers by index in serversWords. A reader
// that stops fails the test.
func (r *rig) readAll(stream, way string, n int) map[int]nats.Header {
	r.Helper()
	headers := make(chan nats.Header, 10*n)
	defer readers[way](r, stream, n, func(h nats.Header) { headers <- h })()
	by, over := map[int]nats.Header{}, time.After(patience)
	for len(by) < n {
		select {
		case h := <-headers:
			i, err := strconv.Atoi(h.Get("Word"))
			check(r.TB, err)
			by[i] = h
		case <-over:
			r.Fatalf("%d of %d messages of %s were read with %s: the reader was stopped", len(by), n, stream, way)
		}
	}
	return by
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
	"NATS/1.0\r\nMillrace-Stream: OTHER\r\nMillrace-Sequence: 1\r\nMillrace-Sequence: 2\r\n" +
		"millrace-subject: a.b\r\nMillrace-Reason: too_large\r\n\r\n",
	"NATS/1.0\r\nNats-Stream: OTHER\r\nNats-Sequence: 1\r\nNats-Subject: a\r\nNats-Last-Consumer: 1\r\n\r\n",
	"NATS/1.0\r\ntraceparent: 00-zz-zz-01\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n" +
		"Traceparent: x\r\ntracestate: =,=,\r\n\r\n",
}

// TestForgedHeadersSteerNothing publishes every header block with and without a payload, among ordinary inputs,
// before and while a worker runs. Each input has exactly one result, and no lease restarts.
func TestForgedHeadersSteerNothing(t *testing.T) {
	eachMode(t, 1, func(t *testing.T, r *rig) {
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
			if r.opts.Exclusive {
				c := r.Consumer(r.opts.Stream, r.consumer())
				pin = c.CachedInfo().PriorityGroups[0].PinnedClientID
			}
			publish(pin)
		}
		run.finishAfter(len(payloads))
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
			t.Errorf("%d results of %d inputs, %d duplicates, %d redeliveries",
				len(found), len(payloads), r.tally.count(inflight.Duplicate), r.tally.redelivered())
		}
		for _, bad := range []string{"beginning the partition anew", "pull interrupted"} {
			if r.Log.Has(bad) {
				t.Errorf("the log says %q", bad)
			}
		}
	})
}
