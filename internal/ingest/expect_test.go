package ingest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// deadStream stores dead letters unless a test sets another stream.
const deadStream = "RESULTS_DEADLETTER"

// stored reads all messages of the result stream under a subject, by source sequence.
func (r *rig) stored(subject string) map[uint64][]jetstream.Msg {
	r.Helper()
	return r.storedIn(r.opts.ResultStream, subject)
}

func (r *rig) storedIn(name, subject string) map[uint64][]jetstream.Msg {
	r.Helper()
	c, err := r.JS.CreateConsumer(r.Ctx(), name, jetstream.ConsumerConfig{FilterSubject: subject, AckPolicy: jetstream.AckNonePolicy})
	check(r.TB, err)
	left := int(c.CachedInfo().NumPending)
	got := map[uint64][]jetstream.Msg{}
	for left > 0 {
		batch, err := c.Fetch(min(left, 500), jetstream.FetchMaxWait(patience))
		check(r.TB, err)
		for m := range batch.Messages() {
			left--
			seq, err := strconv.ParseUint(m.Headers().Get(results.HeaderSequence), 10, 64)
			if err != nil {
				r.Fatalf("message on %s has no source sequence: %v", m.Subject(), m.Headers())
			}
			got[seq] = append(got[seq], m)
		}
		check(r.TB, batch.Error())
	}
	return got
}

// deadLetters reads all dead letters by source sequence. They are in their own stream, or else in the result stream.
func (r *rig) deadLetters() map[uint64][]jetstream.Msg {
	r.Helper()
	name := r.opts.ResultStream + "_DEADLETTER"
	if _, err := r.JS.Stream(r.Ctx(), name); errors.Is(err, jetstream.ErrStreamNotFound) {
		name = r.opts.ResultStream
	}
	return r.storedIn(name, r.opts.DeadLetterPrefix+".>")
}

// deadLetter returns the only dead letter of an input. The test fails if there isn't exactly one.
func (r *rig) deadLetter(sequence uint64) jetstream.Msg {
	r.Helper()
	all := r.deadLetters()[sequence]
	if len(all) != 1 {
		r.Fatalf("%d dead letters of input %d, want 1", len(all), sequence)
	}
	return all[0]
}

func (r *rig) messages(name string) uint64 {
	r.Helper()
	return r.Stream(name).CachedInfo().State.Msgs
}

// wantAll checks that every input from 1 to n has exactly one result, which is correct, and no dead letter.
func (r *rig) wantAll(n int, payload func(i int) []byte) {
	r.Helper()
	r.wantApart(n, payload, nil)
}

// wantApart checks that each payload at an index in dead has exactly one dead letter, which has these headers and the
// payload. Every other input from 1 to n must have exactly one result, which is correct.
func (r *rig) wantApart(n int, payload func(i int) []byte, headers map[string]string, dead ...int) {
	r.Helper()
	found, letters := r.stored(r.opts.ResultPrefix+".>"), r.deadLetters()
	for i := range n {
		seq := uint64(i + 1)
		want := 1
		if slices.Contains(dead, i) {
			want = 0
		}
		if len(found[seq]) != want || len(letters[seq]) != 1-want {
			r.Errorf("input %d has %d results and %d dead letters, want %d and %d", seq, len(found[seq]), len(letters[seq]), want, 1-want)
			continue
		}
		if want == 0 {
			wantHeaders(r.TB, letters[seq][0].Headers(), headers)
			if !bytes.Equal(letters[seq][0].Data(), payload(i)) {
				r.Errorf("the dead letter of input %d is not its payload", seq)
			}
			continue
		}
		m := found[seq][0]
		if err := r.opts.Format.Check(r.opts.Operators, payload(i), m.Data()); err != nil {
			r.Errorf("result of input %d: %v", seq, err)
		}
		if want := fmt.Sprintf("%s.web.%d", r.opts.ResultPrefix, i%3); m.Subject() != want {
			r.Errorf("result of input %d is on %q, want %q", seq, m.Subject(), want)
		}
	}
	if len(found) != n-len(dead) || len(letters) != len(dead) {
		r.Errorf("results of %d inputs and dead letters of %d, want %d and %d", len(found), len(letters), n-len(dead), len(dead))
	}
}

func wantHeaders(t testing.TB, h nats.Header, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := h.Get(key); got != value {
			t.Errorf("header %s is %q, want %q", key, got, value)
		}
	}
}

// wantInOrder checks that the results of each subject are stored in the order of their inputs.
func (r *rig) wantInOrder() {
	r.Helper()
	bySubject := map[string]map[uint64][]jetstream.Msg{}
	for input, messages := range r.stored("results.>") {
		subject := messages[0].Subject()
		if bySubject[subject] == nil {
			bySubject[subject] = map[uint64][]jetstream.Msg{}
		}
		bySubject[subject][input] = messages
	}
	for subject, messages := range bySubject {
		r.wantStoredInOrder(subject, messages)
	}
}

// wantStoredInOrder checks that the first messages of inputs are stored in the order of the inputs.
func (r *rig) wantStoredInOrder(what string, messages map[uint64][]jetstream.Msg) {
	r.Helper()
	order := map[uint64]uint64{} // input by sequence of the stored message
	for input, of := range messages {
		meta, err := of[0].Metadata()
		check(r.TB, err)
		order[meta.Sequence.Stream] = input
	}
	last := uint64(0)
	for _, at := range slices.Sorted(maps.Keys(order)) {
		if order[at] < last {
			r.Fatalf("on %s the message of input %d is stored after that of %d", what, order[at], last)
		}
		last = order[at]
	}
}

// awaitSettled returns once every input is settled, after any number of deliveries. The server processes
// acknowledgements some time after it has read them.
func (r *rig) awaitSettled() {
	r.Helper()
	r.Until("every input is settled", r.allSettled)
}

// allSettled reports whether the consumers have no unsettled inputs. It ignores the temporary consumers with which
// workers read inputs again.
func (r *rig) allSettled() bool {
	stream, err := r.JS.Stream(r.Ctx(), r.opts.Stream)
	if err != nil {
		return false
	}
	settled, consumers := true, stream.ListConsumers(r.Ctx())
	for info := range consumers.Info() {
		settled = settled && (info.Config.Durable == "" || info.NumPending == 0 && info.NumAckPending == 0 && r.knowsLast(stream, info))
	}
	return settled && consumers.Err() == nil
}

// knowsLast reports whether a consumer has delivered its last input. A consumer counts a new input shortly after the
// stream stores it. Until then the consumer seems to have no inputs left.
func (r *rig) knowsLast(stream jetstream.Stream, consumer *jetstream.ConsumerInfo) bool {
	filters := consumer.Config.FilterSubjects
	if len(filters) == 0 {
		filters = []string{cmp.Or(consumer.Config.FilterSubject, ">")}
	}
	for _, filter := range filters {
		last, err := stream.GetLastMsgForSubject(r.Ctx(), filter)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil || consumer.Delivered.Stream < last.Sequence {
			return false
		}
	}
	return true
}

// wantSettled checks that all n inputs are settled and none was delivered twice. A worker with exclusive delivery waits
// at its end until the server has its acknowledgements.
func (r *rig) wantSettled(n int) {
	r.Helper()
	if r.opts.Exclusive && !r.allSettled() {
		r.Error("inputs are not acknowledged after the worker's end")
	}
	r.awaitSettled()
	delivered, again := 0, 0
	for p := range max(r.opts.Partitions, 1) {
		info := r.ConsumerInfo(r.opts.Stream, r.consumerOf(p))
		delivered, again = delivered+int(info.Delivered.Consumer), again+info.NumRedelivered
	}
	if delivered != n || again != 0 || r.tally.redelivered() != 0 {
		r.Errorf("%d deliveries of %d inputs, %d redelivered, of which a worker received %d; want one each",
			delivered, n, again, r.tally.redelivered())
	}
}
