package results

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
)

// TestADeadLetterInItsOwnStreamHasItsPayloadOnce publishes a dead letter in two messages again, because no answer
// arrived. The stream must have its payload only once, although the payload's message has no id.
func TestADeadLetterInItsOwnStreamHasItsPayloadOnce(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, func(c *jetstream.StreamConfig) { c.Duplicates = time.Hour })
	input := r.input(1, make([]byte, 10))
	l := w.newDeadLetter(&input, TooLarge, errors.New("too large"))
	l.form = apart
	for range 2 {
		natstest.OK(t, l.publish(r.Ctx()))
	}
	if n := len(r.Stored("RESULTS")); n != 2 {
		t.Errorf("%d messages are stored, want the payload and the letter", n)
	}
}

// TestAKeptInputHasAnID shows that a kept input has an id. The id is in Millrace's own header if the server need not remember ids.
func TestAKeptInputHasAnID(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, nil)
	d := r.input(1, []byte("compressed"))
	for _, w.o.ResultIDs = range []bool{true, false} {
		h := w.newDeadLetter(&d, TooLarge, errors.New("too large")).input().Header
		if got := h[jetstream.MsgIDHeader] != nil; store.IDOf(h) != inputID(&d) || got != w.o.ResultIDs {
			t.Errorf("ids are remembered: %v; the headers are %v", w.o.ResultIDs, h)
		}
	}
}

// TestTheWindowOfDeadLettersIsThatOfTheirStream uses a shorter window for dead letters than for results. The worker looks up a dead letter older than
// its window, and doesn't store it again. It publishes a later dead letter only while the stream knows its id.
func TestTheWindowOfDeadLettersIsThatOfTheirStream(t *testing.T) {
	t.Parallel()
	r, _ := newRig(t, func(c *jetstream.StreamConfig) { c.Subjects, c.Duplicates = []string{"results.>"}, 2*time.Hour })
	r.Create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"deadletter.>"}, Duplicates: time.Minute})
	w, d := r.writer(func(*Options) {}), r.input(1, []byte("payload"))
	d.Cleared, d.Stored = time.Now().Add(-10*time.Minute), time.Now().Add(-10*time.Minute)
	// The server no longer has the id.
	r.Put(&nats.Msg{Subject: "deadletter.web.0", Header: nats.Header{store.HeaderID: {DeadLetterID(&d, TooLarge)}}})
	natstest.OK(t, w.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("too large")))
	if n := len(r.Stored("DEAD")); n != 1 {
		t.Errorf("%d dead letters are stored, want 1", n)
	}
	timed := &timedPublisher{Publisher: w.server.Again}
	w.server.Again = timed
	d = r.input(2, []byte("payload"))
	d.Cleared = time.Now().Add(-10 * time.Second)
	natstest.OK(t, w.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("too large")))
	if want := d.Cleared.Add(store.PublishFor(time.Minute)); !timed.until.Equal(want) {
		t.Errorf("a dead letter is published until %v, want %v", timed.until, want)
	}
}

// timedPublisher keeps the deadline of the last messages.
type timedPublisher struct {
	store.Publisher
	until time.Time
}

func (p *timedPublisher) Publish(ctx context.Context, msgs []*nats.Msg, dst []store.Answer) []store.Answer {
	p.until, _ = ctx.Deadline()
	return p.Publisher.Publish(ctx, msgs, dst)
}

// TestEachRecordLetterIsStoredInItsOwnForm publishes several dead letters together. Some are too large with the
// input's headers, and some are already stored.
func TestEachRecordLetterIsStoredInItsOwnForm(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	sizes := slices.Concat(slices.Repeat([]int{20}, lettersAtOnce+10), []int{1200, 20, 1900, 20})
	d := r.failedFrame(w, nats.Header{"Note": {strings.Repeat("n", 600)}}, lines(sizes...))
	known := partials{RecordID(&d, 3): "too_large", RecordID(&d, lettersAtOnce): "too_large"}
	natstest.OK(t, r.storeRecordLetters(w, d, known))
	got := map[string]int{} // omitted parts, by the number of dead letters
	for _, m := range r.Stored("RESULTS") {
		record, err := strconv.Atoi(m.Header.Get(HeaderRecord))
		switch omitted := m.Header.Get(HeaderOmitted); {
		case m.Header == nil:
			got["the payload alone"]++
		case err != nil || known.has(RecordID(&d, record)) || omitted != "payload" && len(m.Data) != sizes[record]:
			t.Errorf("record %d has a dead letter of %d bytes, and %q is omitted", record, len(m.Data), omitted)
		default:
			got[omitted]++
		}
	}
	if want := map[string]int{"": len(sizes) - 4, "headers": 1, "the payload alone": 1, "payload": 1}; !maps.Equal(got, want) {
		t.Errorf("the dead letters are %v, want %v", got, want)
	}
}

// TestOnlyTheDeadLetterOfAMessageIsDescribedAsItsInput shows that the dead letter of a record omits the headers that
// describe the whole body. The dead letter of a message has them.
func TestOnlyTheDeadLetterOfAMessageIsDescribedAsItsInput(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, nil)
	header := maps.Clone(described)
	header["Note"] = []string{"kept"}
	d := r.failedFrame(w, header, lines(9))
	for name, c := range map[string]struct {
		letter *deadLetter
		whole  bool
	}{"record": {w.newRecordLetter(&d, 0), false}, "message": {w.newDeadLetter(&d, TooLarge, errors.New("no")), true}} {
		h := c.letter.message(true, "", nil).Header
		for key, want := range header {
			if !c.whole && describesBody(key) {
				want = nil
			}
			if got := h[key]; !slices.Equal(got, want) {
				t.Errorf("the dead letter of a %s has the header %s: %q, want %q", name, key, got, want)
			}
		}
	}
}

// storeRecordLetters stores the dead letters of a frame's failed records, except those in known.
func (r *rig) storeRecordLetters(w *Writer, d inflight.Delivery, known partials) error {
	b := &inflight.Batch{}
	b.Add(d)
	return (&task{Writer: w, protocol: window{w}, b: b, s: &Buffers{partial: known}, sink: noSink{}, to: len(b.Items)}).storeLetters(r.Ctx())
}

// TestDeadLettersOfRefusedPayloadsAreInOrder has more dead letters than are published together, and some finished inputs.
func TestDeadLettersOfRefusedPayloadsAreInOrder(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, nil)
	b := r.payloads(lettersAtOnce + 100)
	for i := range b.Items {
		b.Refuse(i, &operator.RecordError{Operator: "crc32c", Text: "operator crc32c: no"})
	}
	for i := 1; i < len(b.Items); i += 2 {
		// The duplicate window has passed, so the stream doesn't recognize the ids of stored messages.
		b.Items[i].First, b.Items[i].Cleared, b.Items[i].Stored = false, time.Time{}, time.Now().Add(-time.Hour)
	}
	finished := []int{3, lettersAtOnce + 5}
	for _, i := range finished {
		r.Put(&nats.Msg{Subject: "results.web.0", Header: ResultHeader(&b.Items[i], "crc32c")})
	}
	sink := &records{}
	natstest.OK(t, w.Store(r.Ctx(), b, new(Buffers), sink))
	if len(sink.dead) != len(b.Items) || !slices.IsSorted(sink.dead) {
		t.Fatalf("the dead letters %v are reported, want those of all %d inputs in order", sink.dead, len(b.Items))
	}
	letters := r.Stored("RESULTS")[len(finished):]
	for i := range b.Items {
		if slices.Contains(finished, i) {
			continue
		}
		if len(letters) == 0 {
			t.Fatalf("the dead letter of input %d isn't stored", i+1)
		}
		m := letters[0]
		if got, why := m.Header.Get(HeaderSequence), m.Header.Get(HeaderError); got != fmt.Sprint(i+1) ||
			string(m.Data) != fmt.Sprintf("payload %d", i+1) || why != "operator crc32c: no" {
			t.Fatalf("message %d is the dead letter of %s, %q: %s; want that of %d", m.Sequence, got, m.Data, why, i+1)
		}
		letters = letters[1:]
	}
	if len(letters) > 0 {
		t.Errorf("%d messages more are stored", len(letters))
	}
}

// BenchmarkLetters stores the dead letters of a frame whose records all failed. The server has file storage and shares the machine.
//
//	go test ./internal/ingest/results -run xxx -bench Letters -benchtime 5x
func BenchmarkLetters(b *testing.B) {
	const records = 4096
	r, w := newRig(b, func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	d := r.failedFrame(w, nil, bytes.Repeat([]byte("a record of some 30 bytes.....\n"), records))
	for b.Loop() {
		d.Stored = d.Stored.Add(time.Nanosecond) // changes the ids
		d.First, d.Cleared = true, time.Now()
		natstest.OK(b, r.storeRecordLetters(w, d, nil))
	}
	b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "letters/s")
}

// letterCase describes an input that becomes a dead letter, as a whole or for each of its records.
type letterCase struct {
	name   string
	bytes  int // bytes of the payload, or of each record
	header int // bytes of the input's own headers
	framed bool
	why    Reason
}

// letterCases returns cases of every size around the limits of a server with the given max_payload. Some have headers
// near the 64 KiB that JetStream accepts.
func letterCases(maxPayload int) (all []letterCase) {
	reasons := []Reason{TooLarge, MaxDeliver, OperatorError, DeviceFault, InvalidFrame, InvalidEncoding}
	for _, header := range []int{0, 600, maxPayload / 2, maxPayload - 100, 64<<10 - 40} {
		for _, bytes := range []int{0, 1, maxPayload / 4, maxPayload - 1100, maxPayload - 100, maxPayload, maxPayload + 1, 3 * maxPayload} {
			for _, framed := range []bool{false, true} {
				c := letterCase{bytes: bytes, header: header, framed: framed, why: reasons[len(all)%len(reasons)]}
				if framed {
					c.why = OperatorError
				}
				c.name = fmt.Sprintf("%s, %d bytes, headers of %d bytes, framed %v", c.why, bytes, header, framed)
				all = append(all, c)
			}
		}
	}
	return all
}

type countsLeftOut struct {
	nobody
	n atomic.Int64
}

func (c *countsLeftOut) PayloadLeftOut() { c.n.Add(1) }

// letterInput returns a case's input with the given sequence. It compresses frames, so the server accepts the message.
func (r *rig) letterInput(w *Writer, c letterCase, sequence uint64) inflight.Delivery {
	r.Helper()
	m := modelMessage{
		body:   bytes.Repeat([]byte{'x'}, c.bytes),
		header: nats.Header{"Note": {strings.Repeat("n", max(c.header-len("NATS/1.0\r\nNote: \r\n\r\n"), 0))}},
	}
	d := r.input(sequence, m.body)
	if c.framed {
		d = r.failedFrame(w, m.header, lines(c.bytes, c.bytes))
		m.body = []byte("compressed")
	}
	d.Msg, d.Sequence = m, sequence
	return d
}

// publishCase stores the dead letters of a case, with commits if they are not nil.
func (r *rig) publishCase(w *Writer, commits *Commits, c letterCase, d *inflight.Delivery) error {
	cause := errors.New("no")
	switch {
	case commits != nil && c.framed:
		_, err := commits.storeLetters(r.Ctx(), []*deadLetter{w.newRecordLetter(d, 0), w.newRecordLetter(d, 1)}, new(partials))
		return err
	case commits != nil:
		return commits.PublishDeadLetter(r.Ctx(), d, c.why, cause)
	case c.framed:
		return r.storeRecordLetters(w, *d, nil)
	}
	return w.PublishDeadLetter(r.Ctx(), d, c.why, cause)
}

// TestEveryDeadLetterIsStored shows that the server accepts a dead letter of any size and headers in one of its forms. The dead letter has its
// payload, or names the message with the payload. If the payload exceeds the largest message, the dead letter has the digest and is counted.
func TestEveryDeadLetterIsStored(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{false, true} {
		for _, maxPayload := range []int{8 << 10, 100 << 10} {
			if testing.Short() && maxPayload > 8<<10 {
				continue // this case takes long, and shows nothing new about races
			}
			t.Run(fmt.Sprintf("exclusive=%v, %d", exclusive, maxPayload), func(t *testing.T) {
				t.Parallel()
				counts := &countsLeftOut{}
				r, w := provisioned(t, exclusive, int32(maxPayload), counts)
				commits := r.lease(w, "a")
				if (commits != nil) != exclusive {
					t.Fatal(commits)
				}
				cases, leftOut := letterCases(maxPayload), int64(0)
				for n, c := range cases {
					d := r.letterInput(w, c, uint64(n+1))
					if err := r.publishCase(w, commits, c, &d); err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					if !c.framed && c.bytes > maxPayload {
						leftOut++
					}
				}
				r.wantLetters(cases, maxPayload)
				if got := counts.n.Load(); got != leftOut {
					t.Errorf("%d dead letters without payload are counted, want %d", got, leftOut)
				}
			})
		}
	}
}

func (r *rig) wantLetters(cases []letterCase, maxPayload int) {
	r.Helper()
	found, inputs := map[int][]string{}, map[int]int{}
	all := r.Stored("RESULTS_DEADLETTER") // the message with sequence n is all[n-1]
	for _, m := range all {
		sequence, _ := strconv.Atoi(m.Header.Get(HeaderSequence))
		if id, input := strings.CutSuffix(m.Header.Get(jetstream.MsgIDHeader), "#message"); input {
			of, _ := strconv.Atoi(strings.Split(id, ":")[1])
			inputs[of]++
		} else if sequence > 0 && !strings.HasPrefix(m.Subject, "commits") { // the message is neither a payload without headers nor a marker
			found[sequence] = append(found[sequence], m.Header.Get(HeaderRecord))
			r.wantLetter(cases[sequence-1], maxPayload, all, m)
		}
	}
	for n, c := range cases {
		want := []string{""}
		if c.framed {
			want = []string{"0", "1"}
		}
		if got := found[n+1]; !slices.Equal(got, want) {
			r.Errorf("%s: the dead letters of records %q are stored, want %q", c.name, got, want)
		}
		if inputs[n+1] > 1 {
			r.Errorf("%s: the input is stored %d times", c.name, inputs[n+1])
		}
	}
}

func (r *rig) wantLetter(c letterCase, maxPayload int, all []*jetstream.RawStreamMsg, m *jetstream.RawStreamMsg) {
	r.Helper()
	payload := bytes.Repeat([]byte{'x'}, c.bytes)
	if got := m.Header.Get(HeaderReason); got != string(c.why) {
		r.Errorf("%s: the reason is %s", c.name, got)
	}
	omitted, more, _ := strings.Cut(m.Header.Get(HeaderOmitted), ",")
	if told := omitted == "headers" || more == "headers"; told == (m.Header["Note"] != nil) {
		r.Errorf("%s: omits %q and %q, and has the input's headers: %v", c.name, omitted, more, !told)
	}
	where, body := m.Header.Get(HeaderPayloadSequence), m.Data
	if where != "" {
		at, err := strconv.Atoi(where)
		if err != nil || at < 1 || at > len(all) || all[at-1].Sequence != uint64(at) {
			r.Fatalf("%s: there is no message %s: %v", c.name, where, err)
		}
		body = all[at-1].Data
	}
	switch {
	case omitted == "record" && where != "" && c.framed && c.bytes > maxPayload:
		payload = []byte("compressed")
	case omitted == "payload" && where == "" && !c.framed && c.bytes > maxPayload:
		if m.Header.Get(HeaderPayloadDigest) != digest(payload) || m.Header.Get(HeaderPayloadBytes) != strconv.Itoa(c.bytes) {
			r.Errorf("%s: the dead letter has %v", c.name, m.Header)
		}
		payload = nil
	case c.bytes > maxPayload:
		r.Errorf("%s: omits %q and names message %q", c.name, omitted, where)
	}
	if !bytes.Equal(body, payload) {
		r.Errorf("%s: omits %q, and the body has %d bytes", c.name, omitted, len(body))
	}
}

// TestADeadLetterIsWholeOnceItMayBe raises max_payload and delivers a larger message. It shows that a dead letter then
// omits only parts that exceed the new limit.
func TestADeadLetterIsWholeOnceItMayBe(t *testing.T) {
	t.Parallel()
	const before, after = 4 << 10, 64 << 10
	counts := &countsLeftOut{}
	r, w := provisioned(t, false, before, counts)
	r.Reload(func(o *server.Options) { o.MaxPayload = after })
	d := r.letterInput(w, letterCase{bytes: 2 * before, header: 100}, 1)
	natstest.OK(t, w.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("no")))
	all := r.Stored("RESULTS_DEADLETTER")
	if len(all) != 1 {
		t.Fatalf("%d messages are stored, want one dead letter", len(all))
	}
	if len(all[0].Data) != 2*before || all[0].Header.Get("Note") == "" || all[0].Header.Get(HeaderOmitted) != "" {
		t.Errorf("the dead letter has %d bytes and the headers %v, want everything", len(all[0].Data), all[0].Header)
	}
	if n := counts.n.Load(); n > 0 {
		t.Errorf("%d dead letters without payload are counted", n)
	}
}
