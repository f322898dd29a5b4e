package results

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/record"
	"millrace/internal/streams"
)

// failedFrame returns a delivery of a frame with the given headers and lines. All its records failed, and w stores
// its result.
func (r *rig) failedFrame(w *Writer, header nats.Header, lines []byte) inflight.Delivery {
	r.Helper()
	pool, err := inflight.NewPool([]*streams.Pipeline{r.pipeline(w)}, inflight.Options{
		Costs: inflight.NewCosts(w.o.Format, w.o.Operators), Split: frame.Splitter{Framing: frame.NewlineDelimited},
	})
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
