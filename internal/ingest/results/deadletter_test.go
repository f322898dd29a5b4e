package results

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/frame"
	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/memory"
	"millrace/internal/record"
	"millrace/internal/streams"
)

func TestHeaderTextIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	got := headerText(errors.New("one\r\ntwo" + strings.Repeat("x", 1000)))
	if len(got) != 512 || !strings.HasPrefix(got, "one  twoxxx") {
		t.Errorf("%d bytes, %q", len(got), got[:20])
	}
}

// TestTheDocumentsTellTheTwoKindsOfTooLargeApart shows that the docs give different remedies for a payload that
// exceeds a batch and for a result that exceeds the server's limit.
func TestTheDocumentsTellTheTwoKindsOfTooLargeApart(t *testing.T) {
	t.Parallel()
	begins, _, _ := strings.Cut(errUnstorable(errors.New("cause")).Error(), ":")
	for _, page := range []string{"protocol.md", "runbooks/MillraceDeadLetters.md"} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for entry := range strings.Lines(string(text)) {
			if !strings.Contains(entry, "`"+begins+"`") {
				continue
			}
			told = true
			for _, want := range []string{"`too_large`", "`max_payload`", "`max_msg_size`", "`worker check`", "MILLRACE_RESULT_FORMAT=binary"} {
				if !strings.Contains(entry, want) {
					t.Errorf("%s lacks %s where it explains %q:\n%s", page, want, begins, entry)
				}
			}
			if strings.Contains(entry, "MILLRACE_BATCH_BYTES") {
				t.Errorf("%s advises a larger batch for a result that exceeds the server's limit:\n%s", page, entry)
			}
		}
		if !told {
			t.Errorf("%s doesn't explain a dead letter whose error begins with %q", page, begins)
		}
	}
}

// TestReasonsOfTheProtocol shows that the table in docs/protocol.md has exactly the existing reasons.
func TestReasonsOfTheProtocol(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Reasons\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[Reason]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(section, -1) {
		told[Reason(row[1])] = true
	}
	for _, reason := range Reasons {
		if !told[reason] {
			t.Errorf("the page lacks %s", reason)
		}
		delete(told, reason)
	}
	for reason := range told {
		t.Errorf("the page has %s, which is no reason", reason)
	}
}

// TestADeadLetterInItsOwnStreamHasItsPayloadOnce publishes a dead letter in two messages again, because no answer
// arrived. The stream must have its payload only once, although the payload's message has no id.
func TestADeadLetterInItsOwnStreamHasItsPayloadOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: time.Hour})
	w, input := r.writer(), r.input(make([]byte, 10))
	l := w.newDeadLetter(&input, TooLarge, errors.New("too large"))
	l.form = apart
	for range 2 {
		if err := l.publish(r.Ctx()); err != nil {
			t.Fatal(err)
		}
	}
	s := r.Stream("RESULTS")
	if n := s.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d messages are stored, want the payload and the letter", n)
	}
}

// TestAKeptInputHasAnID shows that a kept input has an id. The id is in Millrace's own header if the server need not
// remember ids.
func TestAKeptInputHasAnID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, remembered := range []bool{true, false} {
		w := r.writerWith(func(o *Options) { o.ResultIDs = remembered })
		d := r.input([]byte("compressed"))
		h := w.newDeadLetter(&d, TooLarge, errors.New("too large")).input().Header
		if got := h[jetstream.MsgIDHeader] != nil; commit.ID(h) != inputID(&d) || got != remembered {
			t.Errorf("ids are remembered: %v; the headers are %v", remembered, h)
		}
	}
}

// TestTheWindowOfDeadLettersIsThatOfTheirStream uses a shorter window for dead letters than for results. A dead
// letter older than its window is looked up and not stored again.
func TestTheWindowOfDeadLettersIsThatOfTheirStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, Duplicates: 2 * time.Hour})
	r.Create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"deadletter.>"}, Duplicates: time.Minute})
	w := r.writer()
	d := r.input([]byte("payload"))
	d.Cleared, d.Stored = time.Now().Add(-10*time.Minute), time.Now().Add(-10*time.Minute)
	// The server has forgotten the id.
	stored := &nats.Msg{Subject: "deadletter.web.0", Header: nats.Header{commit.HeaderID: {DeadLetterID(&d, TooLarge)}}}
	if _, err := r.JS.PublishMsg(r.Ctx(), stored); err != nil {
		t.Fatal(err)
	}
	if err := w.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("too large")); err != nil {
		t.Fatal(err)
	}
	if n := r.Stream("DEAD").CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d dead letters are stored, want 1", n)
	}
}

// failedFrame returns a delivery of a frame with the given headers and lines. All its records failed, and w stores
// its result.
func (r *rig) failedFrame(w *Writer, header nats.Header, lines []byte) inflight.Delivery {
	r.Helper()
	pool, err := inflight.NewPool([]*streams.Pipeline{r.pipeline(w)}, memory.Worker{Messages: memory.Messages{
		Format: w.o.Format, Operators: w.o.Operators, Split: frame.Splitter{Framing: frame.NewlineDelimited},
	}})
	if err != nil {
		r.Fatal(err)
	}
	in := r.input(nil)
	in.Msg = modelMessage{body: lines, header: header}
	pool.Unpack(&in)
	in.Frame.Open()
	if err := in.Frame.Fault(); err != nil {
		r.Fatal(err)
	}
	for i := range in.Frame.Records() {
		in.Frame.Mark(i, record.OperatorError)
	}
	return in
}

// TestEachRecordLetterIsStoredInItsOwnForm publishes several dead letters together. Some are too large with the
// input's headers, and some are already stored.
func TestEachRecordLetterIsStoredInItsOwnForm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, MaxMsgSize: 2000})
	w := r.writer()
	var lines []byte
	sizes := slices.Concat(slices.Repeat([]int{20}, lettersAtOnce+10), []int{1200, 20, 1900, 20})
	for _, n := range sizes {
		lines = append(append(lines, strings.Repeat("x", n)...), '\n')
	}
	d := r.failedFrame(w, nats.Header{"Note": {strings.Repeat("n", 600)}}, lines)
	known := partials{RecordID(&d, 3): true, RecordID(&d, lettersAtOnce): true}
	if err := (frameWriter{w}).storeRecordLetters(r.Ctx(), &d, &known); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{} // omitted parts, by the number of dead letters
	s := r.Stream("RESULTS")
	for i := range s.CachedInfo().State.LastSeq {
		m, err := s.GetMsg(r.Ctx(), i+1)
		if err != nil {
			t.Fatal(err)
		}
		record, err := strconv.Atoi(m.Header.Get(HeaderRecord))
		switch omitted := m.Header.Get(HeaderOmitted); {
		case m.Header == nil:
			got["the payload alone"]++
		case err != nil || known[RecordID(&d, record)] || omitted != "payload" && len(m.Data) != sizes[record]:
			t.Errorf("record %d has a dead letter of %d bytes, and %q is omitted", record, len(m.Data), omitted)
		default:
			got[omitted]++
		}
	}
	if want := map[string]int{"": len(sizes) - 4, "headers": 1, "the payload alone": 1, "payload": 1}; !maps.Equal(got, want) {
		t.Errorf("the dead letters are %v, want %v", got, want)
	}
}

// TestTheDeadLetterOfARecordIsNotDescribedAsItsFrame shows that the dead letter of a record omits the headers that
// describe the whole body.
func TestTheDeadLetterOfARecordIsNotDescribedAsItsFrame(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.writer()
	header := maps.Clone(described)
	header["Note"] = []string{"kept"}
	d := r.failedFrame(w, header, []byte("a record\n"))
	for name, c := range map[string]struct {
		letter *deadLetter
		want   bool // whether the headers that describe the body are kept
	}{"record": {w.newRecordLetter(&d, 0), false}, "message": {w.newDeadLetter(&d, TooLarge, errors.New("no")), true}} {
		h := c.letter.message(true, "", nil).Header
		for key := range described {
			if _, got := h[key]; got != (c.want || !describesBody(key)) {
				t.Errorf("the dead letter of a %s has the header %s: %v", name, key, got)
			}
		}
		if h.Get("Note") == "" {
			t.Errorf("the dead letter of a %s has lost a header: %v", name, h)
		}
	}
}

// BenchmarkRecordLetters stores the dead letters of a frame whose records all failed. The server has file storage and shares the
// machine.
//
//	go test ./internal/ingest/results -run xxx -bench RecordLetters -benchtime 5x
func BenchmarkRecordLetters(b *testing.B) {
	const records = 4096
	r := newRig(b)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: 100 * time.Millisecond})
	w := r.writer()
	d := r.failedFrame(w, nil, bytes.Repeat([]byte("a record of some 30 bytes.....\n"), records))
	for b.Loop() {
		d.Stored = d.Stored.Add(time.Nanosecond) // changes the ids
		d.First, d.Cleared = true, time.Now()
		if err := (frameWriter{w}).storeRecordLetters(r.Ctx(), &d, new(partials)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "letters/s")
}
