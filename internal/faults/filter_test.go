package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// failingBytes is the text length, in bytes, at which the filters divide by zero.
const failingBytes = 213

// version describes the filter of one version of a deployment.
type version struct {
	least int  // length in bytes of the shortest text that the filter keeps
	large bool // whether the filter keeps the large documents, which fit in no message and become dead letters
}

var versions = []version{{20, false}, {120, true}}

// expression returns the filter. It fails on a text of failingBytes, and compares all pairs of tags.
func (v version) expression() string {
	most := 1 << 20
	if v.large {
		most = 1 << 30
	}
	return fmt.Sprintf("record.bytes >= %d && record.bytes < %d && 100 / (record.bytes - %d) != 1000 && "+
		"(!has(fields.tags) || fields.tags.all(a, fields.tags.all(b, a + b >= 0)))", v.least, most, failingBytes)
}

// TestFilterIsReplaced repeatedly kills one of two workers at full load, and starts a worker with another filter. The test uses the streams
// that a worker creates by default. Each record of each frame must have one outcome. One filter must have decided about all records of a
// frame, except records for which a killed worker published a dead letter. The result must contain the kept records unchanged. A record that
// can't be read or stored, or on which the filter fails, must have a dead letter. `worker audit` must agree.
func TestFilterIsReplaced(t *testing.T) {
	eachMode(t, func(r *rig) {
		_, batch := largeBytes()
		r.operators("crc32c")
		r.byDefault()
		r.lead = 2000
		r.set("MILLRACE_FRAMING=newline_delimited", "MILLRACE_DECOMPRESS=auto", "MILLRACE_FIELD=text", "MILLRACE_KEEP_FIELDS=tags",
			"MILLRACE_RESULT_FORMAT=annotated", "MILLRACE_FILTER="+versions[0].expression(), fmt.Sprintf("MILLRACE_BATCH_BYTES=%d", batch))
		r.serve(1)
		r.work(2)
		defer r.lookAround()()
		f := r.feed(1<<30, r.documentFrame)
		kills := times(20, 4)
		for n := range kills {
			r.awaitResults(1 + r.rng.IntN(1000))
			r.set("MILLRACE_FILTER=" + versions[(n+1)%2].expression())
			r.replaceWorker()
		}
		r.awaitResults(times(1, largeEvery)) // the short form has large documents too
		f.finish()
		o := &onslaught{r: r, feeds: []*feed{f}}
		last := o.end()
		r.wantDocuments(kills, last)
		r.wantSecondOpinion()
	})
}

// letters maps the number of a record in its frame to the reason and body of its dead letter.
type letters map[int]string

// wholeInput replaces the body of a dead letter that names the message with the whole input.
const wholeInput = "the whole input"

// wantDocuments checks the outcome of each record of the inputs up to the given sequence.
func (r *rig) wantDocuments(kills int, last uint64) {
	r.t.Helper()
	dead := r.readLetters(r.documentFrame)
	a := audit{messages: int(last)}
	found, decided, large := make([]uint8, last+1), map[version]int{}, 0
	r.read(resultStream, func(_ uint64, m jetstream.Msg) {
		h := m.Headers()
		sequence, i := r.number(h, results.HeaderSequence), int(r.number(h, "Input"))
		if sequence == 0 || sequence > last {
			r.t.Fatalf("a result names input %d, but there are only %d", sequence, last)
		}
		found[sequence] = min(found[sequence]+1, 2)
		all := r.documents(i)
		a.payloads += len(all)
		a.dead += len(dead[sequence])
		if hasLarge(i) {
			large++
		}
		v := slices.IndexFunc(versions, func(v version) bool { return v.decided(all, h, m.Data(), dead[sequence]) })
		if v < 0 {
			a.wrong++
			a.found("input %d: no filter gives this result: %v %.300s, and the dead letters %.300v", sequence, h, m.Data(), dead[sequence])
			return
		}
		decided[versions[v]]++
		delete(dead, sequence)
	})
	a.lost, a.doubled = tallyOf(found[1:])
	if a.lost+a.doubled+a.wrong+len(dead) > 0 || last == 0 {
		r.t.Errorf("of %d inputs %d are lost, %d doubled and %d wrong, and %d have dead letters without a result:\n%s",
			last, a.lost, a.doubled, a.wrong, len(dead), strings.Join(a.examples, "\n"))
	}
	if len(decided) != len(versions) || large == 0 || a.dead == 0 {
		r.t.Errorf("the filters decided about %v inputs, %d of them with large documents, so the test shows nothing", decided, large)
	}
	r.t.Logf("%s: %d inputs by filter: %v; %d records, %d dead letters, %d large documents", r.mode(), last, decided, a.payloads, a.dead, large)
	r.enter("a filter is replaced by another one", kills, a)
}

// readLetters returns the dead letters by input. frame returns the i-th input.
func (r *rig) readLetters(frame func(i int) *nats.Msg) map[uint64]letters {
	r.t.Helper()
	all, stored := map[uint64]letters{}, map[string][]byte{} // inputs by their sequence in the stream of dead letters
	r.read(deadStream, func(at uint64, m jetstream.Msg) {
		h := m.Headers()
		if h.Get(results.HeaderReason) == "" {
			stored[strconv.FormatUint(at, 10)] = bytes.Clone(m.Data())
			return
		}
		sequence, record := r.number(h, results.HeaderSequence), int(r.number(h, results.HeaderRecord))
		if all[sequence] == nil {
			all[sequence] = letters{}
		}
		if all[sequence][record] != "" {
			r.t.Errorf("record %d of input %d has two dead letters", record, sequence)
		}
		body := string(m.Data())
		if at := h.Get(results.HeaderPayloadSequence); at != "" {
			body = wholeInput
			if !bytes.Equal(stored[at], frame(int(r.number(h, "Input"))).Data) {
				r.t.Errorf("record %d of input %d: message %s isn't the input", record, sequence, at)
			}
		}
		all[sequence][record] = h.Get(results.HeaderReason) + " " + body
	})
	return all
}

func (r *rig) number(h nats.Header, name string) uint64 {
	r.t.Helper()
	n, err := strconv.ParseUint(h.Get(name), 10, 64)
	if err != nil {
		r.t.Errorf("%s is %q", name, h.Get(name))
	}
	return n
}

// decided reports whether the filter gives a result with the given headers and body, and the given dead letters.
func (v version) decided(all []document, h nats.Header, body []byte, dead letters) bool {
	wantLetters := letters{}
	var want []string // number and text of each record
	for k, d := range all {
		switch isLarge := d.bytes >= 1<<20; {
		case isLarge && (v.large || dead[k] != ""): // a killed worker with the other filter may have published the dead letter
			wantLetters[k] = string(results.TooLarge) + " " + wholeInput
		case d.reason != "":
			wantLetters[k] = d.reason + " " + d.line
		case d.bytes >= v.least && !isLarge:
			want = append(want, fmt.Sprint(k, " ", d.line))
		}
	}
	var got []string
	for line := range bytes.Lines(body) {
		var result struct{ Millrace struct{ Record int } }
		if err := json.Unmarshal(line, &result); err != nil {
			return false
		}
		source, _, _ := strings.Cut(string(line), `,"millrace":`)
		got = append(got, fmt.Sprint(result.Millrace.Record, " ", source, "}"))
	}
	filtered := len(all) - len(want) - len(wantLetters)
	return maps.Equal(dead, wantLetters) && slices.Equal(got, want) &&
		h.Get(results.HeaderRecords) == strconv.Itoa(len(want)) && h.Get(results.HeaderFiltered) == strconv.Itoa(filtered)
}
