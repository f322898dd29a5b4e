package main

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	millrace "millrace/client"
	millracearrow "millrace/client/arrow"
	"millrace/internal/ingest/finding"
)

// filteredDocuments is the number of documents in the large frame of TestFilteredResultsAreRead. The filter keeps a third of them, and
// their results have several parts in every format.
const filteredDocuments = 30_000

// shortDocument returns a document whose text is long enough for the filter of TestFilteredResultsAreRead if i is a multiple of 3.
func shortDocument(i int) string {
	return fmt.Sprintf(`{"id":%d,"text":"%s"}`, i, [3]string{"abcdefghi", "a", ""}[i%3])
}

// readBody returns the number and the checksum of each record in a result, as a program with package millrace/client reads it.
func readBody(t *testing.T, m *jetstream.RawStreamMsg) (numbers []int, sums []string) {
	t.Helper()
	add := func(number int, sum string) { numbers, sums = append(numbers, number), append(sums, sum) }
	line := func(l millrace.Line, err error) {
		if err != nil || l.Record == nil || l.Error != nil {
			t.Fatalf("%+v, %v", l, err)
		}
		add(*l.Record, strings.Trim(string(l.Values["crc32c"]), `"`))
	}
	switch name := m.Header.Get(millrace.HeaderAnnotation); {
	case name != "":
		for d, err := range millrace.Documents(m.Data, name) {
			line(d.Line, err)
			if err == nil && !strings.HasPrefix(string(d.JSON), strings.TrimSuffix(shortDocument(*d.Line.Record), "}")+`,"found":{`) {
				t.Errorf("document %d becomes %s", *d.Line.Record, d.JSON)
			}
		}
	case m.Header.Get(millrace.HeaderContentType) == millrace.TypeBinary:
		r, err := millrace.Decode(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		for number, record := range r.Records() {
			sum, _ := record.Uint32(0)
			add(number, fmt.Sprintf("%08x", sum))
		}
	case m.Header.Get(millrace.HeaderContentType) == millrace.TypeArrow:
		r, err := millracearrow.Decode(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Len() {
			add(int(r.Numbers[i]), fmt.Sprintf("%08x", r.Column("crc32c").Value(i)[0]))
		}
	default:
		for l, err := range millrace.Lines(m.Data) {
			line(l, err)
		}
	}
	return numbers, sums
}

// TestFilteredResultsAreRead filters two frames and two single documents, and reads the results of every format with the client package
// and with the commands.
func TestFilteredResultsAreRead(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		for _, format := range []string{"json", "binary", "arrow", "annotated"} {
			t.Run(mode+" "+format, func(t *testing.T) {
				t.Parallel()
				r := newAuditRig(t, serve(t), mode)
				r.env = append(r.env, "MILLRACE_FIELD=text", "MILLRACE_RESULT_FORMAT="+format, "MILLRACE_ANNOTATE_AS=found", "MILLRACE_FILTER=record.bytes > 5")
				lines := nats.Header{"Content-Type": {millrace.TypeNDJSON}}
				var large strings.Builder
				for i := range filteredDocuments {
					large.WriteString(shortDocument(i) + "\n")
				}
				r.working(func() {
					r.publish("ingest.large", []byte(large.String()), lines)
					r.publish("ingest.nothing", []byte(shortDocument(1)+"\n"+shortDocument(2)), lines)
					r.publish("ingest.single", []byte(shortDocument(0)), nil)
					r.publish("ingest.none", []byte(shortDocument(1)), nil)
					r.settled()
				})
				r.wantRead()
				r.wantPrinted(format)
				if report := r.command(exitDone); report.Results != 4 || report.Filtered != filteredDocuments/3*2+3 {
					t.Errorf("audit: %+v", report)
				}
				call(t, r.env, "audit").want(t, exitDone, "20,003 records were left out of results by a filter")
			})
		}
	}
}

// wantRead checks the results in the result stream.
func (r *auditRig) wantRead() {
	r.Helper()
	want := map[uint64]int{1: filteredDocuments / 3, 2: 0, 3: 1, 4: 0}
	sum := fmt.Sprintf("%08x", crc32.Checksum([]byte("abcdefghi"), crc32.MakeTable(crc32.Castagnoli)))
	var collector millrace.Collector[*jetstream.RawStreamMsg]
	for _, m := range r.stored("RESULTS", 1) {
		parts, err := collector.Add(m.Header, m)
		if err != nil {
			r.Fatal(err)
		}
		if len(parts) == 0 {
			continue
		}
		input, _ := millrace.InputOf(m.Header)
		if input.Sequence == 1 && len(parts) < 2 {
			r.Errorf("the large result has %d parts", len(parts))
		}
		n := 0
		for _, part := range parts {
			numbers, sums := readBody(r.T, part)
			for i, number := range numbers {
				if number != 3*n || sums[i] != sum {
					r.Fatalf("record %d of the result of input %d has the number %d and the checksum %s", n, input.Sequence, number, sums[i])
				}
				n++
			}
		}
		if count, ok := want[input.Sequence]; !ok || n != count || m.Header.Get(millrace.HeaderRecords) != fmt.Sprint(count) {
			r.Errorf("the result of input %d has %d records and the headers %v", input.Sequence, n, m.Header)
		}
		delete(want, input.Sequence)
	}
	if len(want) > 0 {
		r.Errorf("inputs without a result: %v", want)
	}
}

// wantPrinted checks the output of `worker results`.
func (r *auditRig) wantPrinted(format string) {
	r.Helper()
	printed := call(r.T, r.env, "results", "--all", "--payload")
	printed.want(r.T, exitDone,
		`"subject":"ingest.nothing","records":0,"filtered":2}`, `"subject":"ingest.none","records":0,"filtered":1}`,
		`"subject":"ingest.single","record":0,"result":{`, fmt.Sprintf(`"subject":"ingest.large","record":%d,`, filteredDocuments-3))
	if n := strings.Count(printed.out, "\n"); n != filteredDocuments/3+3 {
		r.Errorf("%d lines are printed", n)
	}
	if n := strings.Count(printed.out, `"document":{"id":`); n != map[bool]int{true: filteredDocuments/3 + 1}[format == "annotated"] {
		r.Errorf("%d documents are printed", n)
	}
}

// TestCheckDescribesTheFilter checks that `worker check` reports each condition, and each filter that a preset lacks.
func TestCheckDescribesTheFilter(t *testing.T) {
	t.Parallel()
	env := []string{"MILLRACE_NATS_URL=" + serve(t).URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=quality"}
	findings := func(env []string) (all []finding.Finding, warnings int) {
		var report struct {
			Findings []struct{ Level, What, Found string }
		}
		if err := json.Unmarshal([]byte(call(t, env, "check", "--json").out), &report); err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if f.What == "filter" {
				all = append(all, finding.Finding{Found: f.Found})
				if f.Level == "warning" {
					warnings++
				}
			}
		}
		return all, warnings
	}
	all, warnings := findings(append(env, "MILLRACE_FILTER=quality.words >= 50 && record.bytes > 5"))
	if len(all) != 1 || warnings != 0 || !strings.HasSuffix(all[0].Found, "true: quality.words >= 50, record.bytes > 5") {
		t.Errorf("%d findings: %v", len(all), all)
	}
	all, warnings = findings(append(env, "MILLRACE_FILTER=preset:curator-english"))
	if len(all) != 10 || warnings != 9 || !strings.Contains(all[0].Found, "WordCountFilter") || !strings.Contains(all[9].Found, "RepeatingDuplicateNGramsFilter n=10") {
		t.Errorf("%d findings, %d warnings: %v", len(all), warnings, all)
	}
	if all, _ := findings(env); len(all) > 0 {
		t.Errorf("without a filter: %v", all)
	}
}
