package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	millrace "millrace/client"
	"millrace/internal/compression"
)

// textResult returns the JSON result of a record with the given text. id is the JSON text of the field id. It is empty if the record
// doesn't have that field.
func textResult(text, id string) string {
	if id != "" {
		id = `"id":` + id
	}
	sum := crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Sprintf(`{"bytes":%d,"fields":{%s},"crc32c":"%08x"}`, len(text), id, sum)
}

// failedResult returns the JSON result of a record without a text.
func failedResult(reason, id string) string {
	if id != "" {
		id = `"id":` + id
	}
	messages := map[string]string{
		"no_field": "the record has no text in the configured field", "invalid_json": "the record is not valid JSON", "null": "the record is null",
	}
	return fmt.Sprintf(`{"bytes":0,"fields":{%s},"error":{"reason":"%s","message":"%s"}}`, id, reason, messages[reason])
}

// wantLines compares the result of an input.
func (r *auditRig) wantLines(input uint64, lines ...string) {
	r.Helper()
	var got strings.Builder
	for _, m := range r.results(input) {
		got.Write(m.Data)
	}
	want := strings.Join(lines, "\n")
	if strings.TrimSuffix(got.String(), "\n") != want {
		r.Errorf("the result of input %d is\n%s\nwant\n%s", input, &got, want)
	}
}

// lettersOf returns the dead letters of an input.
func (r *auditRig) lettersOf(input uint64) (all []*jetstream.RawStreamMsg) {
	r.Helper()
	s := r.stream(deadStream)
	for at := uint64(1); at <= s.CachedInfo().State.LastSeq; at++ {
		if m, err := s.GetMsg(r.Context(), at); err == nil && m.Header.Get(millrace.HeaderSequence) == fmt.Sprint(input) {
			all = append(all, m)
		}
	}
	return all
}

// wantLetter checks a dead letter. kind is its Content-Type, and text is a part of Millrace-Error.
func (r *auditRig) wantLetter(m *jetstream.RawStreamMsg, reason, record, kind, body, text string) {
	r.Helper()
	h := m.Header
	if h.Get(millrace.HeaderReason) != reason || h.Get(millrace.HeaderRecord) != record || h.Get("Content-Type") != kind || string(m.Data) != body ||
		!strings.Contains(h.Get(millrace.HeaderError), text) {
		r.Errorf("the dead letter is %.200q with the headers %v; want %.200q of record %q as %q, with the reason %s and %q", m.Data, h, body, record, kind, reason, text)
	}
}

// TestFieldsFromStreamToStream sends JSON in every framing, with records that fail in each way. Then it sends the dead letters again.
func TestFieldsFromStreamToStream(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newAuditRig(t, serve(t), mode)
			r.env = append(r.env, "MILLRACE_FIELD=text", "MILLRACE_KEEP_FIELDS=id")
			long := strings.Repeat("line\n", 14_000)
			quoted, err := json.Marshal(long)
			if err != nil {
				t.Fatal(err)
			}
			lines := []string{
				`{"id":"a1","text":"caf\u00e9"}`, `{"id":2}`, `{"text":"a" "id":3}`, "", `{"text":` + string(quoted) + `,"id":{"x":[1, 2]}}`, `{"text":"b","text":"last"}`,
				strings.Repeat("[", 65) + strings.Repeat("]", 65),
			}
			body, object := []byte(strings.Join(lines, "\n")), nats.Header{"Content-Type": {"application/json"}}
			packed := new(compression.Compressor).Append(nil, compression.Zstd, body)
			lengthy := `{"id":9,"text":"` + strings.Repeat("0123456789", 600_000) + `"}`
			want := []string{
				textResult("café", `"a1"`), failedResult("no_field", "2"), failedResult("invalid_json", ""),
				`{"bytes":70000,"fields":{"id":{"x":[1, 2]}},"error":{"reason":"too_large","message":"the record exceeds a batch, or its result exceeds the server's limit"}}`,
				textResult("last", ""), failedResult("invalid_json", ""),
			}
			r.working(func() {
				r.publish("ingest.1", body, nats.Header{"Content-Type": {millrace.TypeNDJSON}})
				r.publish("ingest.2", packed, nats.Header{"Content-Type": {millrace.TypeNDJSON}, "Content-Encoding": {"zstd"}})
				r.publish("ingest.3", []byte("{\n \"id\": [1,\r\n2], \"text\": \"alone\"\n}"), object)
				r.publish("ingest.4", []byte(`[ {"text":"x","id":null}, {"id":1} , "text"]`), nats.Header{"Content-Type": {millrace.TypeArray}})
				r.publish("ingest.5", []byte(`{"text":7}`), nil)
				r.publish("ingest.6", []byte(`{"text":"a`+"\n"+`"}`), object)
				r.publish("ingest.7", []byte(`[ {"text":"x"}, oops]`), nats.Header{"Content-Type": {millrace.TypeArray}})
				r.awaitLetters(4 + 4 + 2 + 3)
			}, "MILLRACE_BATCH_BYTES=64KiB")
			r.wantLines(1, want...)
			r.wantLines(2, want...)
			r.wantLines(3, textResult("alone", "[1,  2]"))
			r.wantLines(4, textResult("x", "null"), failedResult("no_field", "1"), failedResult("no_field", ""))
			letters := r.lettersOf(2)
			if len(letters) != 4 {
				t.Fatalf("input 2 has %d dead letters, want 4", len(letters))
			}
			r.wantLetter(letters[0], "no_field", "1", "application/json", lines[1], "no text in the configured field")
			r.wantLetter(letters[1], "invalid_json", "2", "application/json", lines[2], "invalid JSON at byte 12: a comma or } is missing")
			r.wantLetter(letters[3], "invalid_json", "5", "application/json", lines[6], "at byte 64: values nest deeper than 64")
			r.wantLetter(r.lettersOf(5)[0], "no_field", "", "", `{"text":7}`, "no text in the configured field")
			r.wantLetter(r.lettersOf(6)[0], "invalid_json", "", "application/json", "{\"text\":\"a\n\"}", "invalid JSON at byte 10")
			r.wantLetter(r.lettersOf(7)[0], "invalid_frame", "", millrace.TypeArray, `[ {"text":"x"}, oops]`, "at byte 16")
			if report := r.command(exitDone); report.Results != 4 || report.DeadLetters != 3 {
				t.Errorf("audit: %+v", report)
			}

			again := r.stream("INGEST").CachedInfo().State.LastSeq + 1
			call(t, r.env, "retry", "--reason", "too_large,no_field").want(t, exitDone, "sent 7 dead letters again")
			r.working(func() {
				r.publish("ingest.9", new(compression.Compressor).Append(nil, compression.Zstd, []byte(lengthy)), nats.Header{"Content-Encoding": {"zstd"}})
				r.settled()
			}, "MILLRACE_FIELD_MISSING=null", "MILLRACE_BATCH_BYTES=16MiB")
			got := map[string]int{}
			for _, m := range r.stored("RESULTS", again) {
				got[strings.TrimSuffix(string(m.Data), "\n")]++
			}
			for text, n := range map[string]int{
				textResult(long, `{"x":[1, 2]}`): 2, failedResult("null", "2"): 2, failedResult("null", "1"): 1, failedResult("null", ""): 2,
				textResult(strings.Repeat("0123456789", 600_000), "9"): 1,
			} {
				if got[text] != n {
					t.Errorf("%d results are %s, want %d", got[text], text, n)
				}
				delete(got, text)
			}
			if len(got) > 0 {
				t.Errorf("there are other results: %v", got)
			}
		})
	}
}

// stored returns the messages of a stream with results of inputs from the given sequence on.
func (r *auditRig) stored(stream string, input uint64) (all []*jetstream.RawStreamMsg) {
	r.Helper()
	s := r.stream(stream)
	for at := uint64(1); at <= s.CachedInfo().State.LastSeq; at++ {
		m, err := s.GetMsg(r.Context(), at)
		if err != nil {
			continue
		}
		if sequence, ok := millrace.InputOf(m.Header); ok && sequence.Sequence >= input {
			all = append(all, m)
		}
	}
	return all
}

// TestFieldsOfArrowFromStreamToStream sends a stream with a row that is too large, and sends the dead letter of that row again.
func TestFieldsOfArrowFromStreamToStream(t *testing.T) {
	t.Parallel()
	r := newAuditRig(t, serve(t), "shared")
	r.env = append(r.env, "MILLRACE_FIELD=text", "MILLRACE_KEEP_FIELDS=id")
	long := strings.Repeat("x", 70_000)
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "text", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "more", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	rows, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(
		`[{"id":1,"text":"a","more":"x"},{"id":2,"text":"`+long+`","more":"y"},{"id":3,"text":null,"more":"z"},{"id":null,"text":"d"}]`))
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	w := ipc.NewWriter(&body, ipc.WithSchema(schema), ipc.WithZstd())
	if err := errors.Join(w.Write(rows), w.Close()); err != nil {
		t.Fatal(err)
	}
	r.working(func() {
		r.publish("ingest.1", body.Bytes(), nats.Header{"Content-Type": {millrace.TypeArrow}})
		r.awaitLetters(1)
	}, "MILLRACE_BATCH_BYTES=64KiB")
	r.wantLines(1, textResult("a", "1"),
		`{"bytes":70000,"fields":{"id":2},"error":{"reason":"too_large","message":"the record exceeds a batch, or its result exceeds the server's limit"}}`,
		failedResult("null", "3"), textResult("d", ""))
	letter := r.lettersOf(1)[0]
	reader, err := ipc.NewReader(bytes.NewReader(letter.Data))
	if err != nil || letter.Header.Get("Content-Type") != millrace.TypeArrow {
		t.Fatalf("the dead letter has the headers %v: %v", letter.Header, err)
	}
	if !reader.Next() || !array.RecordEqual(reader.RecordBatch(), rows.NewSlice(1, 2)) {
		t.Errorf("the dead letter has the row %v", reader.RecordBatch())
	}
	call(t, r.env, "retry").want(t, exitDone, "sent 1 dead letter again")
	r.working(func() { r.settled() })
	r.wantLines(2, textResult(long, "2"))
}

// TestCheckReadsTheFieldsOfTheLastMessages runs no worker, so the stream keeps its messages.
func TestCheckReadsTheFieldsOfTheLastMessages(t *testing.T) {
	t.Parallel()
	r := newAuditRig(t, serve(t), "shared")
	check := func(field string, texts ...string) {
		t.Helper()
		call(t, append(slices.Clone(r.env), "MILLRACE_FIELD="+field), "check").want(t, exitDone, texts...)
	}
	without := call(t, append(slices.Clone(r.env), "MILLRACE_FIELD=text"), "check")
	if without.want(t, exitDone); strings.Contains(without.readable(), "field text") {
		t.Errorf("there is a finding without messages:\n%s", without.readable())
	}
	r.publish("ingest.1", []byte(`{"body":"a","doc":{"text":"b"}}`), nil)
	check("text", "warning  field text: 0 of 1 record in the last 1 message have it; they have body, doc", "set MILLRACE_FIELD to the field with the text, or to a path such as doc.body")
	check("doc.text", "ok       field doc.text: 1 of 1 record in the last 1 message have it")
	r.publish("ingest.2", []byte("{\"text\":\"a\"}\nx\n{}\n"), nats.Header{"Content-Type": {millrace.TypeNDJSON}})
	check("text", "ok       field text: 1 of 4 records in the last 2 messages have it; 1 aren't valid JSON")
	r.publish("ingest.3", []byte("not zstd"), nats.Header{"Content-Encoding": {"zstd"}})
	check("text", "warning  field text: one of the last messages becomes a dead letter: ")
}
