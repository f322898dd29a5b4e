package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
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

// articleSchema has a column that annotated results replace.
var articleSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "millrace", Type: arrow.PrimitiveTypes.Int8},
	{Name: "lang", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, Nullable: true},
	{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
}, nil)

// article returns a row as JSON. The text has the given number of bytes.
func article(id, bytes int, lang, tag string) string {
	return fmt.Sprintf(`{"id":%d,"millrace":7,"lang":%q,"text":%q,"tags":[%q,null]}`, id, lang, strings.Repeat("x", bytes), tag)
}

// articles returns an Arrow stream and its batches.
func articles(t *testing.T, schema *arrow.Schema, batches ...[]string) (stream []byte, rows []arrow.RecordBatch) {
	t.Helper()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema), ipc.WithLZ4())
	for _, text := range batches {
		batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.Join(text, ",")+"]"))
		if err = errors.Join(err, w.Write(batch)); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, batch)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), rows
}

// TestRowsThatPass sends Arrow streams through a worker with a filter. Rows that pass must be in the result with all their columns. Rows that
// fail must be in a dead letter with all their columns.
func TestRowsThatPass(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"none", "zstd"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			r := newAuditRig(t, serve(t), "shared")
			r.env = append(r.env, "MILLRACE_FIELD=text", "MILLRACE_RESULT_FORMAT=annotated", "MILLRACE_KEEP_FIELDS=lang", "MILLRACE_RESULT_ENCODING="+encoding,
				`MILLRACE_FILTER=record.bytes >= 50 && 1 / (record.bytes - 99) == 0 && fields.lang == "en"`)
			random := rand.New(rand.NewPCG(1, 2))
			var long strings.Builder
			for range 20_000 { // also too large after compression
				fmt.Fprintf(&long, "%016x", random.Uint64())
			}
			var batches [2][]string
			for i := range 600 {
				batches[i/400] = append(batches[i/400], article(i, i%300, []string{"en", "en", "fr"}[i%3], fmt.Sprint("tag ", i)))
			}
			batches[1] = append(batches[1], article(600, 80, "de", "x"), article(601, 80, "en", long.String()), article(602, 80, "en", "last"))
			body, rows := articles(t, articleSchema, batches[:]...)
			runs := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}, {Name: "pairs", Type: arrow.ListViewOf(arrow.PrimitiveTypes.Int8)}}, nil)
			listViews, _ := articles(t, runs)
			none, _ := articles(t, articleSchema, []string{article(0, 10, "en", "short")})
			empty, _ := articles(t, articleSchema)
			r.working(func() {
				for _, body := range [][]byte{body, listViews, none, empty} {
					r.publish("ingest.1", body, nats.Header{"Content-Type": {millrace.TypeArrow}})
				}
				r.settled()
			})
			r.wantArticles(rows)
			if parts := len(r.results(1)); encoding == "none" && parts < 2 {
				t.Errorf("the result has %d part, want several", parts)
			}
			letters := r.lettersOf(1)
			if len(letters) != 3 {
				t.Fatalf("%d dead letters, want 3: two on which the filter fails, and one that is too large", len(letters))
			}
			for i, want := range []int{99, 399, 601} {
				h, batch := letters[i].Header, rows[want/400]
				if reason := h.Get(millrace.HeaderReason); h.Get(millrace.HeaderRecord) != fmt.Sprint(want) || reason != map[bool]string{true: "too_large", false: "filter_error"}[want == 601] {
					t.Errorf("dead letter %d has the headers %v", i, h)
				}
				reader, err := ipc.NewReader(bytes.NewReader(letters[i].Data))
				if err != nil || !reader.Next() || !array.RecordEqual(reader.RecordBatch(), batch.NewSlice(int64(want%400), int64(want%400)+1)) {
					t.Errorf("dead letter %d has another row: %v", i, err)
				}
			}
			if letters := r.lettersOf(2); len(letters) != 1 || letters[0].Header.Get(millrace.HeaderReason) != "invalid_frame" ||
				!strings.Contains(letters[0].Header.Get(millrace.HeaderError), `the column "pairs" has the type list view`) {
				t.Errorf("a column that can't be copied has the dead letters %v", letters)
			}
			for input, filtered := range map[uint64]string{3: "1", 4: "0"} {
				m := r.results(input)[0]
				if reader := r.reader(m); reader.Next() || reader.Err() != nil || m.Header.Get(millrace.HeaderRecords) != "0" || m.Header.Get(millrace.HeaderFiltered) != filtered {
					t.Errorf("the result of input %d has rows, or the headers %v", input, m.Header)
				}
			}
			if report := r.command(exitDone); report.Results != 3 || report.DeadLetters != 1 {
				t.Errorf("audit: %+v", report)
			}
			call(t, r.env, "results").want(t, exitDone, `"record":51,"result":{"record":51,"bytes":51,"fields":{"lang":"en"},"crc32c":"`)
		})
	}
}

// reader returns a reader of a result in Arrow.
func (r *auditRig) reader(m *jetstream.RawStreamMsg) *ipc.Reader {
	r.Helper()
	body := m.Data
	if encoding, err := compression.FromHeader(m.Header.Get(millrace.HeaderContentEncoding)); err != nil {
		r.Fatal(err)
	} else if encoding != compression.None {
		if body, err = new(compression.Decompressor).Append(nil, encoding, body, 1<<30); err != nil {
			r.Fatal(err)
		}
	}
	reader, err := ipc.NewReader(bytes.NewReader(body))
	if err != nil || m.Header.Get(millrace.HeaderContentType) != millrace.TypeArrow {
		r.Fatalf("the result has the headers %v: %v", m.Header, err)
	}
	return reader
}

// wantArticles checks the parts of the first input's result.
func (r *auditRig) wantArticles(batches []arrow.RecordBatch) {
	r.Helper()
	var want []int
	for i := range 600 {
		if bytes := i % 300; bytes >= 50 && (bytes < 98 || bytes > 100) && i%3 < 2 {
			want = append(want, i)
		}
	}
	want = append(want, 602)
	parts := r.results(1)
	at, left := 0, fmt.Sprint(603-len(want)-3)
	for n, m := range parts {
		h := m.Header
		if h.Get(millrace.HeaderAnnotation) != "millrace" || h.Get(millrace.HeaderRecords) != fmt.Sprint(len(want)) || h.Get(millrace.HeaderFiltered) != left {
			r.Errorf("part %d has the headers %v", n+1, h)
		}
		if first := map[bool]string{true: "0", false: fmt.Sprint(want[at])}[n == 0]; len(parts) > 1 && h.Get(millrace.HeaderFirstRecord) != first {
			r.Errorf("part %d begins with record %s, want %s", n+1, h.Get(millrace.HeaderFirstRecord), first)
		}
		reader := r.reader(m)
		for reader.Next() {
			got := reader.RecordBatch()
			for i := range int(got.NumRows()) {
				number := want[at]
				r.wantArticle(got.NewSlice(int64(i), int64(i)+1), batches[number/400].NewSlice(int64(number%400), int64(number%400)+1), number)
				at++
			}
		}
		if reader.Err() != nil {
			r.Fatal(reader.Err())
		}
	}
	if at != len(want) {
		r.Errorf("%d rows pass, want %d", at, len(want))
	}
}

// wantArticle compares a row of a result with the row of the input.
func (r *auditRig) wantArticle(got, want arrow.RecordBatch, number int) {
	r.Helper()
	for column, name := range []string{"id", "lang", "text", "tags"} {
		source := want.Schema().FieldIndices(name)[0]
		if got.ColumnName(column) != name || !array.Equal(got.Column(column), want.Column(source)) {
			r.Fatalf("%s of record %d is %v, want %v", got.ColumnName(column), number, got.Column(column), want.Column(source))
		}
	}
	result := got.Column(4).(*array.Struct)
	text, err := result.MarshalJSON()
	if err != nil {
		r.Fatal(err)
	}
	bytes := number % 300
	if number >= 600 {
		bytes = 80
	}
	if head := fmt.Sprintf(`[{"bytes":%d,`, bytes); got.ColumnName(4) != "millrace" || !strings.HasPrefix(string(text), head) ||
		!strings.Contains(string(text), fmt.Sprintf(`"record":%d`, number)) || !strings.Contains(string(text), `"status":"ok"`) || !strings.Contains(string(text), `"fields.lang":"\"en\""`) {
		r.Fatalf("the column %s of record %d is %s", got.ColumnName(4), number, text)
	}
}
