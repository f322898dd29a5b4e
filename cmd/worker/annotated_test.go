package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	millrace "millrace/client"
	"millrace/internal/ingest/natstest"
)

// document returns a JSON line whose text has the given number of words.
func document(id, words int) string {
	return fmt.Sprintf(`{"id":%d,"text":%q,"source":{"lang":"en"}}`, id, strings.TrimSpace(strings.Repeat("word ", words)))
}

// TestDocumentsThatPass sends documents of different lengths through two workers with different filters, one after the other. Each
// document that passes is in the second result stream as it was sent, with the results of both workers.
func TestDocumentsThatPass(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			const documents, frames, singles = 200, 20, 1_000_000
			r := newAuditRig(t, serve(t), mode)
			r.env = append(r.env, "MILLRACE_FRAMING=auto", "MILLRACE_FIELD=text", "MILLRACE_RESULT_FORMAT=annotated", "MILLRACE_KEEP_FIELDS=source",
				`MILLRACE_FILTER=record.bytes >= 50 && 1 / (record.bytes - 99) == 0 && fields.source.lang == "en"`)
			r.working(func() {
				for f := range frames {
					var lines []string
					for i := range documents {
						lines = append(lines, document(1000*f+i, i))
					}
					r.publish(fmt.Sprintf("ingest.%d", f), []byte(strings.Join(lines, "\n")), nats.Header{"Content-Type": {millrace.TypeNDJSON}})
				}
				r.publish("ingest.single", []byte(document(singles+1, 5)), nil)
				r.publish("ingest.single", []byte(document(singles+2, 50)), nil)
				r.settled()
			})
			passed := r.documents("RESULTS")
			for f := range frames {
				for i := range documents {
					id, bytes := 1000*f+i, max(5*i-1, 0)
					switch want := document(id, i); {
					case bytes < 50 || bytes == 98 || bytes == 99 || bytes == 100:
						if passed[id] != "" {
							t.Fatalf("document %d of %d bytes passes: %s", id, bytes, passed[id])
						}
					default:
						head := strings.TrimSuffix(want, "}") + fmt.Sprintf(`,"millrace":{"record":%d,"bytes":%d,"fields":{"source":{"lang":"en"}},"crc32c":"`, i, bytes)
						if !strings.HasPrefix(passed[id], head) {
							t.Fatalf("document %d becomes %s, want %s", id, passed[id], head)
						}
					}
				}
			}
			if passed[singles+1] != "" || passed[singles+2] == "" {
				t.Errorf("of the single documents, these pass: %q, %q", passed[singles+1], passed[singles+2])
			}
			single := r.results(frames + 1)[0]
			if h := single.Header; len(single.Data) > 0 || h.Get(millrace.HeaderRecords) != "0" || h.Get(millrace.HeaderFiltered) != "1" ||
				h.Get(millrace.HeaderAnnotation) != "millrace" || h.Get(millrace.HeaderContentType) != millrace.TypeNDJSON {
				t.Errorf("the document that is left out has the result %q with %v", single.Data, h)
			}
			letters := r.lettersOf(1)
			if len(letters) != 1 {
				t.Fatalf("the first frame has %d dead letters, want one of the document that the filter fails on", len(letters))
			}
			r.wantLetter(letters[0], "filter_error", "20", "application/json", document(20, 20), "division by zero")
			if report := r.command(exitDone); report.Results != frames+2 || report.DeadLetters != 0 {
				t.Errorf("audit: %+v", report)
			}
			r.wantSecondStage(passed)
		})
	}
}

// wantSecondStage runs a worker that reads the result stream of the first one, and checks the documents in its result stream. passed has
// the documents that the first worker kept. The result stream has no partitions, so delivery is shared.
func (r *auditRig) wantSecondStage(passed map[int]string) {
	r.Helper()
	second := []string{
		"MILLRACE_STREAM=RESULTS", "MILLRACE_SUBJECTS=results.>", "MILLRACE_RESULT_STREAM=GOOD", "MILLRACE_RESULT_PREFIX=good", "MILLRACE_DEADLETTER_PREFIX=bad",
		"MILLRACE_DELIVERY=shared", "MILLRACE_ANNOTATE_AS=second", `MILLRACE_FILTER=record.bytes < 500 && fields["millrace.bytes"] >= 50`, "MILLRACE_KEEP_FIELDS=millrace.bytes",
	}
	first := r.env
	r.env = slices.Concat(first, second)
	defer func() { r.env = first }()
	inputs := messagesOn(r.T, r.js, "results.>")
	r.working(func() {
		natstest.Until(r.T, "each result is processed", func() bool { return messagesOn(r.T, r.js, "good.>")+messagesOn(r.T, r.js, "bad.>") >= inputs })
	})
	if report := r.command(exitDone); report.Results != inputs || report.DeadLetters != 0 {
		r.Errorf("audit of the second stage: %+v", report)
	}
	good := r.documents("GOOD")
	for id, document := range passed {
		var d struct{ Millrace struct{ Bytes int } }
		if err := json.Unmarshal([]byte(document), &d); err != nil {
			r.Fatal(err)
		}
		head := strings.TrimSuffix(document, "}") + `,"second":{"record":`
		if want := d.Millrace.Bytes < 500; want != (good[id] != "") || want && !strings.HasPrefix(good[id], head) {
			r.Errorf("document %d becomes %s, want %s", id, good[id], head)
		}
		delete(good, id)
	}
	if len(good) > 0 {
		r.Errorf("there are other documents: %v", good)
	}
}

// documents returns the documents in a result stream by their ids.
func (r *auditRig) documents(stream string) map[int]string {
	r.Helper()
	all := map[int]string{}
	for _, m := range r.stored(stream, 1) {
		if m.Header.Get(millrace.HeaderReason) != "" {
			continue
		}
		for line := range strings.Lines(string(m.Data)) {
			var d struct{ ID int }
			if err := json.Unmarshal([]byte(line), &d); err != nil {
				r.Fatalf("%s: %v", line, err)
			}
			if all[d.ID] != "" {
				r.Errorf("document %d is in the result stream twice", d.ID)
			}
			all[d.ID] = strings.TrimSuffix(line, "\n")
		}
	}
	return all
}
