package ingest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/sim"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// deadStream stores dead letters unless a test sets another stream.
const deadStream = "RESULTS_DEADLETTER"

// deadLetter returns the only dead letter of an input. The test fails if there isn't exactly one.
func (r *rig) deadLetter(stream string, sequence uint64) jetstream.Msg {
	r.Helper()
	all := r.storedIn(stream, "deadletter.>")[sequence]
	if len(all) != 1 {
		r.Fatalf("%d dead letters of input %d, want 1", len(all), sequence)
	}
	return all[0]
}

func wantHeaders(t testing.TB, h nats.Header, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := h.Get(key); got != value {
			t.Errorf("header %s is %q, want %q", key, got, value)
		}
	}
}

func TestPayloadLargerThanABatchIsDeadLettered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	payload := someBytes(1000, 1001, 999)
	r.publish(3, payload)
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 1000})
	r.tally.await(t, inflight.DeadLettered, 1)
	r.tally.await(t, inflight.Published, 2)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	m := r.deadLetter(deadStream, 2)
	if !bytes.Equal(m.Data(), payload(1)) {
		t.Errorf("the dead letter has %d bytes that are not the payload's 1001", len(m.Data()))
	}
	wantHeaders(t, m.Headers(), map[string]string{
		results.HeaderReason: "too_large", results.HeaderDeliveries: "1", results.HeaderStream: "INGEST", results.HeaderSequence: "2",
		results.HeaderSubject: "ingest.web.1", results.HeaderError: "payload of 1001 bytes, and a batch takes 1000: raise MILLRACE_BATCH_BYTES",
		"Trace": "1", "Nats-Msg-Id": fmt.Sprintf("INGEST:2:%d:too_large", r.storedAt(2).UnixNano()),
	})
	if m.Subject() != "deadletter.web.1" {
		t.Errorf("the dead letter is on %q", m.Subject())
	}
	r.wantSettled(3)
}

// TestPayloadIsKeptBeforeTheServerStopsDelivering uses a consumer with its own delivery limit. At the last delivery
// the worker dead-letters the payload instead of trying it.
func TestPayloadIsKeptBeforeTheServerStopsDelivering(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.limitConsumer(2)
	r.publish(1, someBytes(100))
	run := r.run(simDevice(t, noScratch...), streams.Options{})
	r.tally.await(t, inflight.DeadLettered, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	wantHeaders(t, r.deadLetter(deadStream, 1).Headers(), map[string]string{
		results.HeaderReason: "max_deliver", results.HeaderDeliveries: "2", "Trace": "0",
		results.HeaderError: "delivery 2, and the consumer's own MaxDeliver allows no more",
	})
	r.awaitFinished(1)
	if r.tally.count(inflight.Nacked) != 1 || len(r.stored("results.>")) != 0 {
		t.Errorf("%d given back and %d results, want 1 and none", r.tally.count(inflight.Nacked), len(r.stored("results.>")))
	}
}

// TestCountOfDeliveriesAloneGivesNothingUp delivers good payloads more often than MILLRACE_MAX_DELIVER. All of them
// have results.
func TestCountOfDeliveriesAloneGivesNothingUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.opts.MaxDeliver = 2
	const n = 5
	r.publish(n, document)
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	for range 4 { // number of deliveries of each payload
		for range n {
			m, err := c.Next(jetstream.FetchMaxWait(patience))
			if err == nil {
				err = m.Nak()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
	if dead := r.tally.count(inflight.DeadLettered); dead != 0 {
		t.Errorf("%d good payloads were given up", dead)
	}
}

// TestPayloadThatNoDeviceHasMemoryForIsDeadLettered delivers a payload that needs more memory than a working device
// has. It is dead-lettered after too many deliveries.
func TestPayloadThatNoDeviceHasMemoryForIsDeadLettered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.opts.MaxDeliver = 2
	const n, greedy = 40, 17
	payload := unfitAt(greedy)
	r.publish(n, payload)
	kernels := operator.HostKernels()
	kernels[0] = picky{kernels[0], true}
	run := r.run(openHost(t, kernels), streams.Options{BatchPayloads: 10})
	r.tally.await(t, inflight.DeadLettered, 1)
	r.tally.awaitStored(t, n-1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	wantHeaders(t, r.deadLetter(deadStream, greedy+1).Headers(), map[string]string{results.HeaderReason: "max_deliver", results.HeaderDeliveries: "3"})
	if got := len(r.stored("results.>")); got != n-1 {
		t.Errorf("%d results, want %d", got, n-1)
	}
}

// TestResultThatCannotBeStoredIsDeadLettered has one result in a batch that exceeds the result stream's size limit.
func TestResultThatCannotBeStoredIsDeadLettered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxMsgSize: 800})
	r.provision()
	heavy := nats.Header{"Heavy": {strings.Repeat("h", 700)}}
	r.publishMsg(nil, []byte("first"))
	r.publishMsg(heavy, []byte("second"))
	r.publishMsg(nil, []byte("third"))
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.Published, 2)
	r.tally.await(t, inflight.DeadLettered, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	m := r.deadLetter(deadStream, 2)
	wantHeaders(t, m.Headers(), map[string]string{results.HeaderReason: "too_large", "Heavy": heavy.Get("Heavy")})
	if string(m.Data()) != "second" || !strings.Contains(m.Headers().Get(results.HeaderError), "its result cannot be stored") {
		t.Errorf("dead letter %q: %q", m.Data(), m.Headers().Get(results.HeaderError))
	}
	if got := r.stored("results.>"); len(got[1]) != 1 || len(got[2]) != 0 || len(got[3]) != 1 {
		t.Errorf("%d, %d, %d results of the three inputs, want 1, 0, 1", len(got[1]), len(got[2]), len(got[3]))
	}
	r.wantSettled(3)
}

// TestDeadLetterSavesThePayloadBeforeTheHeaders uses an input with large headers. With Millrace's own headers they
// would exceed the 64 KiB that JetStream accepts.
func TestDeadLetterSavesThePayloadBeforeTheHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publishMsg(nats.Header{"Heavy": {strings.Repeat("h", 65450)}}, []byte("payload"))
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.DeadLettered, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	m := r.deadLetter(deadStream, 1)
	wantHeaders(t, m.Headers(), map[string]string{results.HeaderReason: "too_large", results.HeaderSequence: "1", "Heavy": ""})
	if string(m.Data()) != "payload" {
		t.Errorf("the dead letter is %q", m.Data())
	}
	r.wantSettled(1)
}

func TestWithoutAStreamForDeadLettersThePayloadComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}})
	r.provision()
	config := r.StreamConfig(deadStream)
	r.Delete(deadStream)
	payload := someBytes(1001, 5)
	r.publish(2, payload)
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 1000})
	r.tally.await(t, inflight.Published, 1) // other inputs are not delayed
	r.tally.await(t, inflight.Nacked, 1)
	if info := r.consumerInfo(); info.NumAckPending == 0 || info.AckFloor.Stream != 0 {
		t.Errorf("the payload without a dead letter is settled: %d unacknowledged, floor %d", info.NumAckPending, info.AckFloor.Stream)
	}
	r.Create(config)
	r.tally.await(t, inflight.DeadLettered, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	if m := r.deadLetter(deadStream, 1); !bytes.Equal(m.Data(), payload(0)) {
		t.Errorf("the dead letter has %d bytes that are not the payload's", len(m.Data()))
	}
	r.awaitFinished(2)
}

func (r *rig) publishMsg(h nats.Header, data []byte) {
	r.Helper()
	if _, err := r.JS.PublishMsg(r.Ctx(), &nats.Msg{Subject: "ingest.web.0", Header: h, Data: data}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) limitConsumer(deliveries int) {
	r.Helper()
	c := r.consumerInfo().Config
	c.MaxDeliver = deliveries
	if _, err := r.JS.UpdateConsumer(r.Ctx(), r.opts.Stream, c); err != nil {
		r.Fatal(err)
	}
}

// simDevice opens a simulated device without delays and with the given faults.
func simDevice(t testing.TB, faults ...sim.Fault) *sim.Device {
	t.Helper()
	d, err := sim.Open(sim.Options{Kernels: operator.HostKernels(), Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && d.Err() == nil { // a lost device cannot be closed without an error
			t.Errorf("closing the device: %v", err)
		}
		d = nil // as in openHost
	})
	return d
}

// TestPayloadAsLargeAsTheServerTakesIsNotLost uses payloads that leave no space for all headers of a dead letter, or
// only for Millrace's own headers.
func TestPayloadAsLargeAsTheServerTakesIsNotLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	fill := func(header nats.Header, left int) []byte {
		var lines int
		if header != nil {
			lines = len("NATS/1.0\r\n\r\n")
			for key, values := range header {
				lines += len(key) + len(": \r\n") + len(values[0])
			}
		}
		return bytes.Repeat([]byte{'x'}, embedded.MaxPayload-lines-left)
	}
	own := nats.Header{"Trace": {string(bytes.Repeat([]byte{'t'}, 2000))}}
	payloads := [][]byte{fill(nil, 0), fill(nil, 100), fill(own, 0)}
	for i, payload := range payloads {
		var h nats.Header
		if i == 2 {
			h = own
		}
		r.publishMsg(h, payload)
	}
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 1000})
	r.tally.await(t, inflight.DeadLettered, len(payloads))
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	letters := r.letters()
	for i, payload := range payloads {
		all := letters[strconv.Itoa(i+1)]
		if len(all) != 1 {
			t.Fatalf("%d letters of input %d, want 1", len(all), i+1)
		}
		r.wantPayload(all[0], payload, []string{"payload", "payload", "headers"}[i])
	}
	r.wantSettled(len(payloads))
}

// letters returns the messages of the dead-letter stream by source sequence. It skips messages without a source
// sequence.
func (r *rig) letters() map[string][]*jetstream.RawStreamMsg {
	r.Helper()
	stream := r.Stream(deadStream)
	found := map[string][]*jetstream.RawStreamMsg{}
	for at := uint64(1); at <= stream.CachedInfo().State.LastSeq; at++ {
		m, err := stream.GetMsg(r.Ctx(), at)
		if err != nil {
			r.Fatal(err)
		}
		if input := m.Header.Get(results.HeaderSequence); input != "" {
			found[input] = append(found[input], m)
		}
	}
	return found
}

// wantPayload checks a dead letter that omits the given part. Its payload must be stored in the same message or in
// another one.
func (r *rig) wantPayload(m *jetstream.RawStreamMsg, payload []byte, omitted string) {
	r.Helper()
	wantHeaders(r.TB, m.Header, map[string]string{results.HeaderReason: "too_large", results.HeaderOmitted: omitted, "Trace": ""})
	where := m.Header.Get(results.HeaderPayloadSequence)
	if omitted != "payload" {
		if where != "" || !bytes.Equal(m.Data, payload) {
			r.Errorf("the letter of input %s is not its payload, or says that it is in message %q", m.Header.Get(results.HeaderSequence), where)
		}
		return
	}
	at, err := strconv.ParseUint(where, 10, 64)
	if err != nil {
		r.Fatalf("the letter does not say where its payload is: %v", m.Header)
	}
	stream := r.Stream(deadStream)
	if apart, err := stream.GetMsg(r.Ctx(), at); err != nil || !bytes.Equal(apart.Data, payload) || apart.Subject != m.Subject {
		r.Errorf("message %d is not the payload of input %s (%v)", at, m.Header.Get(results.HeaderSequence), err)
	}
}
