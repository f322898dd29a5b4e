package cliclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

const specs = "crc32c,minhash?k=4&hashes=2&seed=42"

// result returns the message that a worker would store for these records of the input. A single record isn't a frame.
func result(t *testing.T, f operator.Format, sequence int, statuses []record.Status, records ...string) *nats.Msg {
	t.Helper()
	ops, err := operator.ParseList(specs)
	if err != nil {
		t.Fatal(err)
	}
	var data [][]byte
	for _, r := range records {
		data = append(data, []byte(r))
	}
	m := message("out.web", sequence)
	rows := table.Reference(ops, data, statuses)
	if len(records) == 1 {
		m.Data = rows.AppendSingle(nil, f)
	} else {
		m.Data = rows.Append(nil, f, 0, len(records))
		m.Header.Set(client.HeaderRecords, fmt.Sprint(len(records)))
	}
	m.Header.Set(client.HeaderOperators, specs)
	m.Header.Set(client.HeaderContentType, table.ContentType(f, len(records) != 1))
	return m
}

// message returns a message about the input with the given sequence.
func message(subject string, sequence int) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Header.Set(client.HeaderStream, "IN")
	m.Header.Set(client.HeaderSequence, fmt.Sprint(sequence))
	m.Header.Set(client.HeaderSubject, "in"+strings.TrimLeft(subject, "outdea"))
	return m
}

// printer returns a printer of all messages and its two outputs.
func (r *rig) printer() (p *Printer, out, notes *text) {
	out, notes = &text{}, &text{}
	return &Printer{
		Conn: r.NC, Topology: topology.Topology{Subjects: []string{"in.>"}, ResultStream: "OUT", ResultPrefix: "out", DeadLetterPrefix: "dead"}, All: true,
		Parse: func(spec string) (operator.Operator, error) { return operator.Parse(spec) }, Out: out, Notes: notes,
	}, out, notes
}

// text is a buffer that several goroutines may use.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// TestEveryFormatPrintsTheSameLines compares the lines with the lines of JSON results, which are printed unchanged.
func TestEveryFormatPrintsTheSameLines(t *testing.T) {
	t.Parallel()
	for _, records := range [][]string{{"one record"}, {"first", "", "a third record"}, {}} {
		want := ""
		for _, f := range []operator.Format{operator.JSON, operator.Arrow, operator.Binary} {
			for _, encoding := range []compression.Encoding{compression.None, compression.Zstd, compression.LZ4} {
				r := newRig(t)
				m := result(t, f, 7, nil, records...)
				if encoding != compression.None && len(m.Data) > 0 {
					m.Data = new(compression.Compressor).Append(nil, encoding, m.Data)
					m.Header.Set(client.HeaderContentEncoding, encoding.ContentEncoding())
				}
				r.publish(m)
				p, out, notes := r.printer()
				if err := p.Print(r.Ctx()); err != nil || notes.String() != "" {
					t.Fatalf("%v, %v: %v, %s", f, encoding, err, notes)
				}
				got := out.String()
				if want == "" {
					want = got
				}
				expected := want
				if f == operator.Binary && len(records) > 1 { // the format has no lengths
					expected = withoutLengths(want)
				}
				if got != expected {
					t.Errorf("%v, %v: got\n%s\nwant\n%s", f, encoding, got, expected)
				}
			}
		}
		lines := strings.Split(strings.TrimSpace(want), "\n")
		if len(lines) != max(len(records), 1) {
			t.Errorf("%d lines for %d records", len(lines), len(records))
		}
		for i, text := range lines {
			var line Line
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.Stream != "IN" || line.Sequence != 7 || line.Subject != "in.web" {
				t.Errorf("%s is %+v, %v", text, line, err)
			}
			switch {
			case len(records) == 0:
				if line.Records == nil || *line.Records != 0 || line.Result != nil {
					t.Errorf("a frame without records prints %s", text)
				}
			case len(records) == 1 && line.Record != nil, len(records) > 1 && (line.Record == nil || *line.Record != uint64(i)):
				t.Errorf("record %d prints %s", i, text)
			case !strings.HasPrefix(string(line.Result), fmt.Sprintf(`{"bytes":%d,"crc32c":"`, len(records[i]))) || !strings.Contains(string(line.Result), `"minhash":{"k":4,"seed":42,"signature":[`):
				t.Errorf("record %d has the result %s", i, line.Result)
			}
		}
	}
}

func withoutLengths(lines string) string {
	var out strings.Builder
	for line := range strings.Lines(lines) {
		before, after, _ := strings.Cut(line, `"result":{"bytes":`)
		_, after, _ = strings.Cut(after, ",")
		out.WriteString(before + `"result":{` + after)
	}
	return out.String()
}

func TestRecordsThatFailedAndDeadLetters(t *testing.T) {
	t.Parallel()
	statuses := []record.Status{record.OK, record.TooLarge, record.OperatorError}
	for f, want := range map[operator.Format][]string{
		operator.Arrow:  {`"record":1,"result":{"bytes":3,"error":{"reason":"too_large"}}`, `"record":2,"result":{"bytes":5,"error":{"reason":"operator_error"}}`},
		operator.Binary: {`"record":1,"result":{"error":{"reason":"too_large"}}`, `"record":2,"result":{"error":{"reason":"operator_error"}}`},
		operator.JSON:   {`"record":1,"result":{"bytes":3,"error":{"reason":"too_large","message":`, `"record":2,"result":{"bytes":5,"error":{"reason":"operator_error","message":`},
	} {
		r := newRig(t)
		letter := message("dead.web", 4)
		letter.Data = []byte("three")
		for name, value := range map[string]string{client.HeaderReason: "operator_error", client.HeaderError: "operator x: <no> & \"yes\"", client.HeaderOperator: "x",
			client.HeaderDeliveries: "3", client.HeaderRecord: "2"} {
			letter.Header.Set(name, value)
		}
		r.publish(letter, result(t, f, 4, statuses, "one", "two", "three"))
		p, out, _ := r.printer()
		if err := p.Print(r.Ctx()); err != nil {
			t.Fatal(err)
		}
		want = append(want, `{"stream":"IN","sequence":4,"subject":"in.web","record":2,"dead_letter":{"reason":"operator_error","error":"operator x: <no> & \"yes\"","operator":"x","deliveries":3,"bytes":5}}`)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 4 {
			t.Fatalf("%v: %d lines:\n%s", f, len(lines), out)
		}
		for i, text := range want {
			if !strings.Contains(lines[i+1], text) {
				t.Errorf("%v: line %d is\n%s\nwant\n%s", f, i+1, lines[i+1], text)
			}
		}
	}
}

func TestUnknownOperatorsArePrintedAsStored(t *testing.T) {
	t.Parallel()
	for f, want := range map[operator.Format]string{
		operator.Binary: `"result":{"bytes":9,"crc32c":{"base64":"g5IG4w=="},"minhash":{"base64":"`,
		operator.Arrow:  `"result":{"bytes":9,"crc32c":[3808858755],"minhash":[`,
		operator.JSON:   `"result":{"bytes":9,"crc32c":"e3069283","minhash":{`,
	} {
		r := newRig(t)
		r.publish(result(t, f, 1, nil, "123456789"), result(t, f, 2, nil, "123456789"))
		p, out, notes := r.printer()
		p.Parse = func(spec string) (operator.Operator, error) { return nil, errors.New("unknown") }
		if err := p.Print(r.Ctx()); err != nil {
			t.Fatal(err)
		}
		if strings.Count(out.String(), want) != 2 {
			t.Errorf("%v: got\n%s\nwant %s", f, out, want)
		}
		if n := strings.Count(notes.String(), "the operator crc32c isn't known here"); f != operator.JSON && n != 1 {
			t.Errorf("%v: %d notes: %s", f, n, notes)
		}
	}
}

// sequences returns the input sequences of the printed lines, in order.
func sequences(t *testing.T, out *text) (all []uint64) {
	t.Helper()
	for line := range strings.Lines(out.String()) {
		var l Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l.Sequence)
	}
	return all
}

func TestTheLastMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 60 {
		m := result(t, operator.JSON, i, nil, "x")
		if i%20 == 3 {
			m.Subject = "out.rare"
			m.Header.Set(client.HeaderSubject, "in.rare")
		}
		r.publish(m)
	}
	for name, c := range map[string]struct {
		last    uint64
		all     bool
		subject string
		want    []uint64
		note    bool
	}{
		"two":                   {2, false, "", []uint64{58, 59}, true},
		"more than there are":   {1000, false, "", nil, false},
		"all":                   {2, true, "", nil, false},
		"the rare":              {2, false, "in.rare", []uint64{23, 43}, true},
		"all of the rare":       {5, false, "in.rare", []uint64{3, 23, 43}, false},
		"those that aren't":     {5, false, "in.none", []uint64{}, false},
		"a subject by wildcard": {1, false, "in.*", []uint64{59}, true},
	} {
		p, out, notes := r.printer()
		p.Last, p.All, p.Subject = c.last, c.all, c.subject
		if err := p.Print(r.Ctx()); err != nil {
			t.Fatal(err)
		}
		got := sequences(t, out)
		if c.want == nil {
			if len(got) != 60 {
				t.Errorf("%s: %d lines", name, len(got))
			}
		} else if !slices.Equal(got, c.want) {
			t.Errorf("%s: the inputs %v, want %v", name, got, c.want)
		}
		if noted := strings.Contains(notes.String(), "OUT may have more"); noted != c.note {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
}

// TestSubjectsThatTheStreamMaps uses streams that store results and dead letters on mapped subjects.
func TestSubjectsThatTheStreamMaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		source, destination string
	}{
		{"all", "out.>", "archive.>"},
		{"a partition", ">", "{{partition(4)}}.>"},
		{"some", "out.rare", "archive.out"},
		{"onto others", "out.rare", "out.often.rare"},
		{"several onto one", "out.*", "archive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Delete("DEAD")
			r.Delete("OUT")
			r.Create(jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>", "dead.>"}, SubjectTransform: &jetstream.SubjectTransformConfig{Source: c.source, Destination: c.destination}})
			rare, letter := result(t, operator.JSON, 2, nil, "x"), message("dead.rare", 3)
			rare.Subject = "out.rare"
			rare.Header.Set(client.HeaderSubject, "in.rare")
			letter.Header.Set(client.HeaderReason, "too_large")
			r.publish(result(t, operator.JSON, 1, nil, "x"), rare, letter)
			for subject, want := range map[string][]uint64{"": {1, 2, 3}, "in.rare": {2, 3}, "in.*": {1, 2, 3}, "in.none": nil} {
				p, out, notes := r.printer()
				p.Subject = subject
				note := ""
				if want == nil {
					note = "note: no results and no dead letters of inputs on in.none yet\n"
				}
				if err := p.Print(r.Ctx()); err != nil || notes.String() != note {
					t.Errorf("subject %q: %v, %q, want the note %q", subject, err, notes, note)
				}
				if got := sequences(t, out); !slices.Equal(got, want) {
					t.Errorf("subject %q: the inputs %v, want %v", subject, got, want)
				}
			}
		})
	}
}

// TestNothingToPrint shows that a note gives the reason for an empty output.
func TestNothingToPrint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, out, notes := r.printer()
	if err := p.Print(r.Ctx()); err != nil || out.String() != "" || notes.String() != "note: no results and no dead letters yet\n" {
		t.Errorf("empty streams: %v, %q, notes %q", err, out, notes)
	}
	r.publish(result(t, operator.JSON, 1, nil, "x"))
	for subject, want := range map[string]string{
		"in.*": "", "*.web": "", "in.none": "note: no results and no dead letters of inputs on in.none yet\n",
		"none.>": "note: no results and no dead letters of inputs on none.> yet\n", // the results of other inputs have the same subject form
	} {
		p, out, notes := r.printer()
		p.Subject = subject
		if err := p.Print(r.Ctx()); err != nil || notes.String() != want || (out.String() == "") != (want != "") {
			t.Errorf("subject %s: %v, %q, notes %q, want %q", subject, err, out, notes, want)
		}
	}
}

// TestPayloadsBesideDeadLetters prints dead letters whose payload is in a separate message. For a record of a frame,
// that message contains the whole input.
func TestPayloadsBesideDeadLetters(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"in their own stream": true, "in the stream of results": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if !own {
				r.Delete("DEAD")
				r.Create(jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>", "dead.>"}})
			}
			letter := message("dead.web", 7)
			letter.Header.Set(client.HeaderReason, "too_large")
			letter.Header.Set(client.HeaderOmitted, "payload")
			r.publish(&nats.Msg{Subject: "dead.web", Data: []byte("a large payload")},
				&nats.Msg{Subject: "dead.web", Header: nats.Header{"Nats-Msg-Id": {"IN:7:1"}}, Data: []byte("a whole input")}, letter)
			p, out, notes := r.printer()
			if err := p.Print(r.Ctx()); err != nil || notes.String() != "" || !slices.Equal(sequences(t, out), []uint64{7}) {
				t.Errorf("%v, %q, notes %q; want the dead letter of input 7 alone", err, out, notes)
			}
			r.publish(&nats.Msg{Subject: "out.web", Data: []byte("not of the worker")})
			if err := p.Print(r.Ctx()); !errors.Is(err, ErrUnreadable) {
				t.Errorf("a message among results that isn't one: %v", err)
			}
		})
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(result(t, operator.JSON, 1, nil, "x"), result(t, operator.JSON, 2, nil, "x"))
	p, out, _ := r.printer()
	p.All, p.Last, p.Follow = false, 1, true
	ctx, interrupt := context.WithCancel(r.Ctx())
	done := make(chan error, 1)
	go func() { done <- p.Print(ctx) }()
	r.Until("the last one is printed", func() bool { return strings.Contains(out.String(), `"sequence":2`) })
	letter := message("dead.web", 3)
	letter.Header.Set(client.HeaderReason, "too_large")
	r.publish(letter, result(t, operator.JSON, 4, nil, "x"))
	r.Until("both new ones are printed", func() bool {
		return strings.Contains(out.String(), `"sequence":3`) && strings.Contains(out.String(), `"sequence":4`)
	})
	interrupt()
	if err := <-done; err != nil {
		t.Errorf("an interrupt is the error %v", err)
	}
	if got := sequences(t, out); len(got) != 3 || got[0] != 2 {
		t.Errorf("the inputs %v", got)
	}
}

// TestResultsInParts has parts of a worker that died before the parts of the complete result.
func TestResultsInParts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	records := []string{"0", "1", "2", "3"}
	part := func(at, cut string, from, to int) *nats.Msg {
		ops, _ := operator.ParseList(specs)
		data := make([][]byte, 0, len(records))
		for _, s := range records {
			data = append(data, []byte(s))
		}
		m := message("out.web", 9)
		m.Data = table.Reference(ops, data, nil).Append(nil, operator.Binary, from, to)
		for name, value := range map[string]string{client.HeaderRecords: "4", client.HeaderPart: at, client.HeaderCut: cut, client.HeaderFirstRecord: fmt.Sprint(from),
			client.HeaderOperators: specs, client.HeaderContentType: client.TypeBinary} {
			m.Header.Set(name, value)
		}
		return m
	}
	r.publish(part("1/3", "a", 0, 1), part("1/2", "b", 0, 3), part("2/2", "b", 3, 4))
	p, out, _ := r.printer()
	if err := p.Print(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); got != 4 || !strings.Contains(out.String(), `"record":3,"result"`) {
		t.Errorf("%d lines:\n%s", got, out)
	}
	p, out, notes := r.printer()
	p.All, p.Last = false, 1
	if err := p.Print(r.Ctx()); err != nil || out.String() != "" || !strings.Contains(notes.String(), "part 1 of 2 is missing: it may be before the messages that were read") {
		t.Errorf("the last part alone: %v, %q, notes %q", err, out, notes)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	broken := result(t, operator.Binary, 2, nil, "x")
	broken.Data = broken.Data[:10]
	unknown := result(t, operator.JSON, 3, nil, "x")
	unknown.Header.Set(client.HeaderContentType, "text/plain")
	expired := &nats.Msg{Subject: "out.web", Header: nats.Header{"Nats-Marker-Reason": {"MaxAge"}}} // the server's delete marker, which needs no note
	r.publish(&nats.Msg{Subject: "out.web", Data: []byte("hello")}, broken, unknown, result(t, operator.JSON, 4, nil, "x"), expired)
	p, out, notes := r.printer()
	err := p.Print(r.Ctx())
	if !errors.Is(err, ErrUnreadable) || !strings.HasPrefix(err.Error(), "3 messages") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"message 1 on out.web: it is neither a result nor a dead letter", "message 2 on out.web: ", `message 3 on out.web: the result has the Content-Type "text/plain"`} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	if got := sequences(t, out); !slices.Equal(got, []uint64{4}) {
		t.Errorf("the inputs %v, want the readable one", got)
	}
}

func TestStreamsThatAreNotAsTheWorkerMakesThem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, _, _ := r.printer()
	p.Topology.ResultStream = "NONE"
	if err := p.Print(r.Ctx()); err == nil || !strings.Contains(err.Error(), "stream NONE: ") || !strings.Contains(err.Error(), "MILLRACE_RESULT_STREAM") {
		t.Errorf("no stream: %v", err)
	}
	r.Delete("DEAD")
	p, _, notes := r.printer()
	if err := p.Print(r.Ctx()); err != nil || !strings.Contains(notes.String(), "no stream stores dead letters, on [dead.>]") {
		t.Errorf("no stream of dead letters: %v, %q", err, notes)
	}
	// One stream has both.
	r.Create(jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>", "dead.>"}})
	letter := message("dead.web", 3)
	letter.Header.Set(client.HeaderReason, "too_large")
	r.publish(letter, result(t, operator.JSON, 4, nil, "x"))
	p, out, _ := r.printer()
	if err := p.Print(r.Ctx()); err != nil || !slices.Equal(sequences(t, out), []uint64{3, 4}) {
		t.Errorf("one stream: %v, %q", err, out)
	}
	r.Delete("OUT")
	r.Create(jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}, Retention: jetstream.WorkQueuePolicy})
	p, _, _ = r.printer()
	if err := p.Print(r.Ctx()); err == nil || !strings.Contains(err.Error(), "is a work queue") {
		t.Errorf("a work queue: %v", err)
	}
}
