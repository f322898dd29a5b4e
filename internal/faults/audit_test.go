package faults

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/frame"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// audit counts the outcomes of a test's inputs. A frame counts once per record, or once in total if it has no records
// or can't be split.
type audit struct {
	messages    int
	payloads    int
	redelivered int // deliveries that were not the first of their input, according to the consumers' state
	dead        int // number of payloads with a dead letter
	lost        int // number of payloads with neither a result nor a dead letter
	doubled     int // number of payloads with more than one result or dead letter
	wrong       int // number of incorrect results and dead letters
	examples    []string
}

// maxExamples is the maximum number of findings in a report.
const maxExamples = 10

func (a *audit) found(format string, args ...any) {
	if len(a.examples) < maxExamples {
		a.examples = append(a.examples, fmt.Sprintf(format, args...))
	}
}

// entry is one input with the outcomes that are found for it.
type entry struct {
	subject  string  // of the input
	payload  uint64  // hash of the payload
	framed   bool    // whether the result has one line per payload
	damage   *damage // nil if the input can be split
	dead     int     // number of dead letters of the whole input
	payloads []outcome
}

// outcome is one payload with the results and dead letters found for it. The payload is a whole input or a record of
// it.
type outcome struct {
	result, payload uint64 // hashes of the expected result and of the payload
	results, dead   int    // number of results and dead letters
	failed          int    // number of results that report a failure; each also has a dead letter
}

var hashSeed = maphash.MakeSeed()

// audit compares the contents of all other streams with the input stream, starting at the input with sequence first.
// The input stream is the reference, because no publisher got a confirmation for an input that is not in it.
func (r *rig) audit(first uint64) audit {
	r.t.Helper()
	var a audit
	if c, ok := r.consumed(); ok {
		a.redelivered = c.delivered // first deliveries are subtracted below
	}
	inputs := map[uint64]*entry{}
	all := 0
	if r.history != nil {
		r.history = &history{poison: r.history.poison, records: r.history.records}
	}
	r.read(inputStream, func(sequence uint64, m jetstream.Msg) {
		if all++; sequence >= first {
			inputs[sequence] = r.newEntry(sequence, m)
		}
	})
	a.messages, a.redelivered = len(inputs), max(a.redelivered-all, 0)
	for _, stream := range r.outputs() {
		r.read(stream, func(_ uint64, m jetstream.Msg) { a.judge(inputs, first, m) })
	}
	for _, sequence := range slices.Sorted(maps.Keys(inputs)) {
		a.count(sequence, inputs[sequence])
	}
	return a
}

// newEntry returns the entry of an input, with its expected outcomes. With a stateful operator, call it for every input in stream order.
func (r *rig) newEntry(sequence uint64, m jetstream.Msg) *entry {
	e := &entry{subject: m.Subject(), payload: maphash.Bytes(hashSeed, m.Data())}
	payloads := [][]byte{m.Data()}
	if r.split != nil {
		payloads, e.damage = r.split(m.Headers(), m.Data())
		e.framed = e.damage == nil
	}
	for i, payload := range payloads {
		at := neardup.Position{Sequence: sequence, Record: uint64(i)}
		e.payloads = append(e.payloads, outcome{result: maphash.Bytes(hashSeed, r.referenceAt(m.Subject(), at, payload)), payload: maphash.Bytes(hashSeed, payload)})
	}
	if len(payloads) == 0 { // the outcome is an empty result or a dead letter
		e.payloads = append(e.payloads, outcome{result: maphash.Bytes(hashSeed, nil), payload: e.payload})
	}
	return e
}

func (a *audit) count(sequence uint64, e *entry) {
	for i, p := range e.payloads {
		a.payloads++
		if p.dead+e.dead > 0 {
			a.dead++
		}
		switch found := p.results - p.failed + p.dead + e.dead; {
		case found == 0:
			a.lost++
			a.found("payload %d of input %d on %s has no result", i, sequence, e.subject)
		case found > 1 || p.failed > 1:
			a.doubled++
			a.found("payload %d of input %d on %s has %d results, %d dead letters, and %d of its whole input", i, sequence, e.subject, p.results, p.dead, e.dead)
		case e.framed && e.dead == 0 && p.failed != p.dead:
			a.wrong++
			a.found("payload %d of input %d on %s failed %d times by its results, and has %d dead letters", i, sequence, e.subject, p.failed, p.dead)
		}
	}
}

// judge checks a result or a dead letter.
func (a *audit) judge(inputs map[uint64]*entry, first uint64, m jetstream.Msg) {
	h := m.Headers()
	sequence, err := strconv.ParseUint(h.Get(results.HeaderSequence), 10, 64)
	e := inputs[sequence]
	if e == nil {
		if err != nil || sequence >= first {
			a.wrong++
			a.found("a message on %s is of no input: %v", m.Subject(), h)
		}
		return
	}
	_, rest, _ := strings.Cut(e.subject, "ingest") // the partition's number may precede the subject
	subject := "results" + rest
	var right bool
	switch {
	case h.Get(results.HeaderReason) != "":
		subject = "deadletter" + rest
		if len(subject) > longSubject && strings.HasPrefix(subject, m.Subject()) {
			subject = m.Subject()
		}
		right = e.enterDeadLetter(m)
	case e.framed:
		right = e.enterLines(m)
	default:
		e.payloads[0].results++
		right = maphash.Bytes(hashSeed, m.Data()) == e.payloads[0].result
	}
	if !right {
		a.wrong++
		a.found("input %d: %d bytes on %s are not what they should be: %.200q, headers %v", sequence, len(m.Data()), m.Subject(), m.Data(), h)
	} else if m.Subject() != subject {
		a.wrong++
		a.found("input %d: on %s, want %s", sequence, m.Subject(), subject)
	}
}

// enterDeadLetter adds a dead letter of the input or of one of its records, and reports whether the dead letter is
// correct.
func (e *entry) enterDeadLetter(m jetstream.Msg) (right bool) {
	got, record := maphash.Bytes(hashSeed, m.Data()), m.Headers().Get(results.HeaderRecord)
	if record == "" {
		e.dead++
		return got == e.payload && (e.damage == nil || e.damage.isNamed(m.Headers()))
	}
	i, err := strconv.Atoi(record)
	if err != nil || i < 0 || i >= len(e.payloads) || !e.framed {
		return false
	}
	e.payloads[i].dead++
	if m.Headers().Get("Content-Type") == frame.ContentTypeOf(frame.Arrow) { // a stream of one row
		var row frame.Frame
		if err := (&frame.Splitter{Framing: frame.Arrow}).Open(&row, "", m.Data()); err != nil || row.Records() != 1 {
			return false
		}
		got = maphash.Bytes(hashSeed, row.Record(0))
	}
	return got == e.payloads[i].payload
}

// enterLines adds the lines of a frame's result or of a part of it, and reports whether they are correct.
func (e *entry) enterLines(m jetstream.Msg) (right bool) {
	i, _ := strconv.Atoi(m.Headers().Get(results.HeaderFirstRecord)) // 0 if the result has one part
	right = i >= 0
	for line := range bytes.SplitSeq(bytes.TrimSuffix(m.Data(), []byte("\n")), []byte("\n")) { // without records, the result is one empty line
		if i < 0 || i >= len(e.payloads) {
			return false
		}
		e.payloads[i].results++
		if bytes.Contains(line, []byte(`"error":`)) {
			e.payloads[i].failed++
		} else if maphash.Bytes(hashSeed, line) != e.payloads[i].result {
			right = false
		}
		i++
	}
	return right
}

// longSubject is the length, in bytes, above which the subject of a dead letter may be truncated.
const longSubject = 3900

func (a *audit) add(b audit) {
	a.messages += b.messages
	a.payloads += b.payloads
	a.redelivered += b.redelivered
	a.dead += b.dead
	a.lost += b.lost
	a.doubled += b.doubled
	a.wrong += b.wrong
}

// reference returns the expected result of a payload. Without a stateful operator, it depends on nothing else.
func (r *rig) reference(payload []byte) []byte { return r.referenceAt("", neardup.Position{}, payload) }

// referenceAt returns the expected result of a payload at a position, in an input on the given subject.
func (r *rig) referenceAt(subject string, at neardup.Position, payload []byte) []byte {
	if r.history != nil && r.history.poison != nil && r.history.poison(at, payload) {
		return nil // the payload fails, so it isn't in the state
	}
	records := make([][]byte, len(r.ops))
	for i, op := range r.ops {
		if s, ok := op.(operator.Stateful); ok {
			records[i] = r.history.verdict(s, subject, at, payload)
			continue
		}
		records[i] = op.AppendReference(make([]byte, 0, op.Stride()), payload)
	}
	return operator.JSON.Append(nil, r.ops, len(payload), records)
}

// outputs returns the names of all streams except the input stream and the streams of key-value stores.
func (r *rig) outputs() []string {
	r.t.Helper()
	ctx := r.Ctx()
	var names []string
	list := r.JS.StreamNames(ctx)
	for name := range list.Name() {
		if name != inputStream && !strings.HasPrefix(name, "KV_") {
			names = append(names, name)
		}
	}
	if err := list.Err(); err != nil {
		r.t.Fatal(err)
	}
	return names
}

// read calls visit for every message in a stream except commit markers.
func (r *rig) read(stream string, visit func(sequence uint64, m jetstream.Msg)) {
	r.t.Helper()
	ctx := r.Ctx()
	consumer, err := r.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: natstest.Patience,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	from, maximum := pull.Request{Stream: stream, Consumer: consumer.CachedInfo().Name}, r.readAtOnce(stream)
	for left := int(consumer.CachedInfo().NumPending); left > 0; {
		came, err := pull.Fetch(r.JS.Conn(), from, min(left, maximum), natstest.Patience, func(m *pull.Message) {
			meta, err := m.Metadata()
			if err != nil {
				r.t.Fatalf("read stream %s: %v", stream, err)
			}
			if !isMarker(m) {
				visit(meta.Sequence.Stream, m)
			}
		})
		if left -= came; errors.Is(err, nats.ErrNoResponders) && ctx.Err() == nil {
			continue // the consumer has no leader yet
		}
		if err != nil {
			r.t.Fatalf("read stream %s, %d messages before its end: %v", stream, left, err)
		}
	}
	if err := r.JS.DeleteConsumer(r.Ctx(), stream, consumer.CachedInfo().Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		r.t.Fatal(err)
	}
}

// readAtOnce returns the number of messages to request at once: about 8 MiB of messages with the stream's mean size, at
// most limit messages.
func (r *rig) readAtOnce(stream string) int {
	const limit, bytes = 5000, 8 << 20
	state, _ := r.state(stream)
	mean := state.Bytes/max(state.Msgs, 1) + 1
	return max(min(limit, int(bytes/mean)), 1)
}

// settle waits until every input is settled, stops the workers, and audits the inputs from sequence first on. A lost,
// doubled or incorrect result fails the test.
func (r *rig) settle(first uint64) audit {
	r.t.Helper()
	r.awaitFinished()
	r.retire()
	r.wantSecondOpinionFrom(first)
	return r.mustAudit(first)
}

// awaitFinished waits until every input is settled. It fails the test if no new results arrive for too long.
func (r *rig) awaitFinished() {
	r.t.Helper()
	for before := r.settled(); !r.comes(r.isFinished); {
		now := r.settled()
		if now == before {
			c, _ := r.consumed()
			r.t.Errorf("some inputs are not settled within %v: %+v", natstest.Patience, c)
			return
		}
		before = now
	}
}

// mustAudit runs an audit and fails the test if any result is lost, doubled or incorrect.
func (r *rig) mustAudit(first uint64) audit {
	r.t.Helper()
	a := r.audit(first)
	if a.payloads == 0 {
		r.t.Error("there was no input, so the test shows nothing")
	}
	if a.lost+a.doubled+a.wrong > 0 {
		r.t.Errorf("of %d payloads %d lost, %d doubled, %d wrong, want none:\n%s",
			a.payloads, a.lost, a.doubled, a.wrong, strings.Join(a.examples, "\n"))
	}
	return a
}

// close settles all inputs and adds their outcomes to the record, under the name of the fault. times is the number of
// injections.
func (r *rig) close(fault string, times int) audit {
	r.t.Helper()
	return r.closeFrom(1, fault, times)
}

// closeFrom does the same as close, for the inputs from sequence first on.
func (r *rig) closeFrom(first uint64, fault string, times int) audit {
	r.t.Helper()
	a := r.settle(first)
	r.enter(fault, times, a)
	return a
}

func (r *rig) enter(fault string, times int, a audit) {
	record.enter(row{fault: fault, mode: r.mode(), times: times, audit: a, took: time.Since(r.began)})
}

func (r *rig) mode() string { return strings.TrimPrefix(r.env[0], "MILLRACE_DELIVERY=") }
