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

// The filters of two versions of a deployment. Both fail on a text of 213 bytes.
var filters = []string{
	"record.bytes >= 20 && 100 / (record.bytes - 213) != 1000",
	"record.bytes >= 120 && 100 / (record.bytes - 213) != 1000",
}

// leastBytes are the lengths from which on the filters keep a text.
var leastBytes = []int{20, 120}

const failingBytes = 213

// document is a record that a filter decides about.
type document struct {
	line   string
	bytes  int    // length of the text
	reason string // of the dead letter; empty if there is none
}

// documents returns the records of the i-th frame. One in fifty is invalid, lacks the text, or makes the filters fail.
func documents(i int) []document {
	all := make([]document, i*7%90)
	for k := range all {
		n := i*1000 + k
		d := document{bytes: n * 31 % 240}
		switch n % 150 {
		case 3:
			d = document{line: fmt.Sprintf(`{"n":%d,"text":"a" "b"}`, n), reason: "invalid_json"}
		case 53:
			d = document{line: fmt.Sprintf(`{"n":%d}`, n), reason: "no_field"}
		case 103:
			d.bytes = failingBytes
		}
		if d.line == "" {
			d.line = fmt.Sprintf(`{"n":%d,"text":"%s"}`, n, strings.Repeat("x", d.bytes))
		}
		if d.bytes == failingBytes {
			d.reason = "filter_error"
		}
		all[k] = d
	}
	return all
}

// TestFilterIsReplaced repeatedly kills a worker under load, and starts a worker with another filter. Each record of each frame must have
// one outcome. One filter must have decided about all records of a frame, and the result must have the kept records unchanged. A record
// that can't be read, or on which the filter fails, must have a dead letter. `worker audit` must agree.
func TestFilterIsReplaced(t *testing.T) {
	eachMode(t, func(r *rig) {
		r.operators("crc32c")
		r.lead = frameLead
		r.set("MILLRACE_FRAMING=newline_delimited", "MILLRACE_FIELD=text", "MILLRACE_RESULT_FORMAT=annotated", "MILLRACE_FILTER="+filters[0])
		r.serve(1)
		r.work(2)
		f := r.feed(endless, func(i int) *nats.Msg {
			var body []byte
			for _, d := range documents(i) {
				body = append(append(body, d.line...), '\n')
			}
			return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%7), Data: body, Header: nats.Header{"Input": {fmt.Sprint(i)}}}
		})
		kills := times(20, 4)
		for n := range kills {
			r.awaitResults(1 + r.rng.IntN(100))
			r.set("MILLRACE_FILTER=" + filters[(n+1)%2])
			r.replaceWorker()
		}
		f.finish()
		r.awaitFinished()
		r.retire()
		r.wantSecondOpinionFrom(1)
		r.wantDocuments(kills)
	})
}

// wantDocuments checks the outcome of each record of each input.
func (r *rig) wantDocuments(kills int) {
	r.t.Helper()
	inputs, letters := map[uint64]int{}, map[uint64]map[int]string{}
	r.read(inputStream, func(sequence uint64, m jetstream.Msg) {
		inputs[sequence], _ = strconv.Atoi(m.Headers().Get("Input"))
	})
	for _, stream := range r.outputs() {
		r.read(stream, func(_ uint64, m jetstream.Msg) {
			h := m.Headers()
			if h.Get(results.HeaderReason) == "" {
				return
			}
			sequence, record := r.number(h, results.HeaderSequence), int(r.number(h, results.HeaderRecord))
			if letters[sequence] == nil {
				letters[sequence] = map[int]string{}
			}
			if letters[sequence][record] != "" {
				r.t.Errorf("record %d of input %d has two dead letters", record, sequence)
			}
			letters[sequence][record] = h.Get(results.HeaderReason) + " " + string(m.Data())
		})
	}
	found, decided := map[uint64]bool{}, [2]int{}
	r.read(resultStream, func(_ uint64, m jetstream.Msg) {
		h := m.Headers()
		if h.Get(results.HeaderReason) != "" {
			return
		}
		sequence := r.number(h, results.HeaderSequence)
		if found[sequence] {
			r.t.Errorf("input %d has two results", sequence)
		}
		found[sequence] = true
		if by := r.decidedBy(documents(inputs[sequence]), h, m.Data(), letters[sequence]); by < 0 {
			r.t.Errorf("input %d: no filter gives this result: %v %.300s, and the dead letters %v", sequence, h, m.Data(), letters[sequence])
		} else {
			decided[by]++
		}
	})
	a := audit{messages: len(inputs), payloads: len(inputs), lost: len(inputs) - len(found), wrong: len(inputs) - decided[0] - decided[1]}
	if a.lost+a.wrong > 0 || a.messages == 0 {
		r.t.Errorf("of %d inputs %d have results, %v of them by the filters", len(inputs), len(found), decided)
	}
	if decided[0] == 0 || decided[1] == 0 {
		r.t.Errorf("the filters decided about %v inputs, so nothing is shown", decided)
	}
	r.enter("a filter is replaced by another one", kills, a)
}

func (r *rig) number(h nats.Header, name string) uint64 {
	r.t.Helper()
	n, err := strconv.ParseUint(h.Get(name), 10, 64)
	if err != nil {
		r.t.Errorf("%s is %q", name, h.Get(name))
	}
	return n
}

// decidedBy returns the filter that gives a result with the given headers and body, and the given dead letters. It returns -1 if there is
// none.
func (r *rig) decidedBy(all []document, h nats.Header, body []byte, letters map[int]string) int {
	r.t.Helper()
	wantLetters := map[int]string{}
	for k, d := range all {
		if d.reason != "" {
			wantLetters[k] = d.reason + " " + d.line
		}
	}
	var got []string // number and text of each record
	for line := range bytes.Lines(body) {
		var result struct{ Millrace struct{ Record int } }
		if err := json.Unmarshal(line, &result); err != nil {
			return -1
		}
		source, _, _ := strings.Cut(string(line), `,"millrace":`)
		got = append(got, fmt.Sprint(result.Millrace.Record, " ", source, "}"))
	}
	if !maps.Equal(letters, wantLetters) {
		return -1
	}
	return slices.IndexFunc(leastBytes, func(least int) bool {
		var want []string
		for k, d := range all {
			if d.reason == "" && d.bytes >= least {
				want = append(want, fmt.Sprint(k, " ", d.line))
			}
		}
		filtered := len(all) - len(want) - len(wantLetters)
		return slices.Equal(got, want) && h.Get(results.HeaderRecords) == strconv.Itoa(len(want)) && h.Get(results.HeaderFiltered) == strconv.Itoa(filtered)
	})
}
