package faults

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// These constants describe the documents of TestLoadVerdictsOfFailingRecords. The filter leaves out texts of fewer than shortText bytes before
// the state decides. It fails on texts of failingBytes after the state has decided. The result of a padded document fits in no message.
const (
	shortText    = 100
	padding      = 1200 << 10
	paddedEvery  = 500 // number of frames per padded document
	leastResults = `record.bytes >= 100 && neardup.bands <= 20`
	failsLate    = leastResults + ` && 100 / (record.bytes - 213 + 0 * neardup.bands) != 1000`
)

// similar is a document of a frame.
type similar struct {
	Text string `json:"text"`
	Pad  string `json:"pad,omitempty"`
}

// reason returns the reason of the document's dead letter, or "". late reports whether the filter fails on texts of failingBytes.
func (s similar) reason(late bool) string {
	switch {
	case len(s.Text) == failingBytes && late:
		return "filter_error"
	case s.Pad != "":
		return string(results.TooLarge)
	}
	return ""
}

// similars returns the documents of the i-th frame. Most of them are copies of documents in earlier frames on the same subject.
func (r *rig) similars(i int) []similar {
	rng := rand.New(rand.NewPCG(r.seed, uint64(i)))
	all := make([]similar, rng.IntN(4))
	for k := range all {
		content := uint64(i-loadSubjects*rng.IntN(i/loadSubjects+1))*4 + uint64(rng.IntN(4))
		length := failingBytes
		if content%5 > 0 {
			length = 60 + int(content*7%400)
		}
		all[k].Text = strings.Map(asLine, string(corpus.Text(content+1, length)))
		if i%paddedEvery == paddedEvery/2 && k == len(all)-1 {
			all[k].Pad = strings.Repeat("x", padding)
		}
	}
	return all
}

func asLine(c rune) rune {
	if c < ' ' || c > '~' {
		return ' '
	}
	return c
}

// similarFrame returns the i-th frame. A frame with a padded document is compressed, because the uncompressed frame exceeds the
// server's message size limit.
func (r *rig) similarFrame(i int) *nats.Msg {
	var body bytes.Buffer
	encoder, padded := json.NewEncoder(&body), false
	for _, s := range r.similars(i) {
		padded = padded || s.Pad != ""
		_ = encoder.Encode(s) // a write to a Buffer never fails
	}
	m := &nats.Msg{Subject: fmt.Sprintf("ingest.load.%d", i%loadSubjects), Data: body.Bytes(), Header: nats.Header{"Input": {strconv.Itoa(i)}}}
	if padded {
		m.Data = new(compression.Compressor).Append(nil, compression.Zstd, m.Data)
		m.Header.Set("Content-Encoding", "zstd")
	}
	return m
}

// TestLoadVerdictsOfFailingRecords publishes records that become dead letters after the state has decided on them. The filter fails on them, or
// their results fit in no message. The test repeatedly kills all workers, so commits are repeated. Streams, partitions and states are the
// workers' defaults, and publishers don't wait. The failed records keep their place in the state, so later copies name them. The state has each
// other record once. At the end, `worker retry` resends the records on which the filter failed. They are duplicates of themselves.
func TestLoadVerdictsOfFailingRecords(t *testing.T) {
	need(t)
	t.Parallel()
	for _, servers := range []int{1, replicas} {
		t.Run(fmt.Sprintf("R%d", servers), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "exclusive")
			r.byDefault()
			r.operators("neardup")
			r.set("MILLRACE_FRAMING=newline_delimited", "MILLRACE_DECOMPRESS=auto", "MILLRACE_FIELD=text", "MILLRACE_KEEP_FIELDS=pad", "MILLRACE_FILTER="+failsLate)
			r.serve(servers)
			r.work(2)
			n, kills := times(200_000, 6_000), times(10, 2)
			l := r.stormOf(n, func(first int) func(i int) *nats.Msg {
				return func(i int) *nats.Msg { return r.similarFrame(first + i) }
			})
			r.killAll(kills, n/(2*kills))
			l.wait()
			last := l.end()
			r.wantSecondOpinion()
			r.set("MILLRACE_FILTER=" + leastResults)
			r.work(1)
			r.retryLetters("filter_error")
			l.end()
			r.wantSimilars(kills, last)
			r.wantSecondOpinion()
		})
	}
}

// retryLetters resends the dead letters with the given reason. `worker retry` must refuse dead letters whose record fits in no message.
func (r *rig) retryLetters(reason string) {
	r.t.Helper()
	large := 0
	for _, records := range r.readLetters(r.similarFrame) {
		for _, letter := range records {
			if letter == reason+" "+wholeInput {
				large++
			}
		}
	}
	cmd := exec.CommandContext(r.Ctx(), r.binary, "retry", "--reason", reason)
	cmd.Env = append(r.environment(r.URL), r.env...)
	out, err := cmd.CombinedOutput()
	refused := bytes.Count(out, []byte("refused: its record fits no message"))
	if refused != large || bytes.Count(out, []byte("not sent: ")) != large || (err == nil) != (large == 0) {
		r.t.Fatalf("worker retry refuses %d dead letters, want the %d with large records: %v\n%s", refused, large, err, out)
	}
}

// decidedInput is an input with the records of its stored result.
type decidedInput struct {
	sequence uint64
	subject  string
	number   int      // number of its frame
	retryOf  string   // value of results.HeaderRetryOf
	records  []string // records of its result; see similarResult
}

// similarResult returns a record of a result, from its line.
func similarResult(line []byte) (string, error) {
	var result struct {
		Record  int
		Neardup json.RawMessage
	}
	err := json.Unmarshal(line, &result)
	return fmt.Sprint(result.Record, " ", string(result.Neardup)), err
}

// wantSimilars checks the outcome of each record. Inputs above the given sequence were sent again.
func (r *rig) wantSimilars(kills int, last uint64) {
	r.t.Helper()
	dead := r.readLetters(r.similarFrame)
	without := maps.Clone(dead) // dead letters of inputs without a result
	var inputs []*decidedInput
	r.read(resultStream, func(_ uint64, m jetstream.Msg) {
		h := m.Headers()
		in := &decidedInput{sequence: r.number(h, results.HeaderSequence), number: int(r.number(h, "Input")), retryOf: h.Get(results.HeaderRetryOf), subject: h.Get(results.HeaderSubject)}
		for line := range bytes.Lines(m.Data()) {
			record, err := similarResult(line)
			if err != nil {
				r.t.Fatalf("input %d: %v: %s", in.sequence, err, line)
			}
			in.records = append(in.records, record)
		}
		inputs = append(inputs, in)
	})
	slices.SortFunc(inputs, func(a, b *decidedInput) int { return cmp.Compare(a.sequence, b.sequence) })
	const defaultRecords = 1_000_000
	h, op := &history{records: defaultRecords}, r.ops[0].(operator.Stateful)
	a := audit{messages: len(inputs)}
	again, ownFormer := 0, 0
	for i, in := range inputs {
		if in.sequence != uint64(i)+1 {
			r.t.Fatalf("the %d-th result is of input %d", i+1, in.sequence)
		}
		docs := r.similars(in.number)
		if in.sequence > last {
			sequence, record, _ := strings.Cut(in.retryOf, ":")
			k, err := strconv.Atoi(record)
			if err != nil || k >= len(docs) || dead[parsed(sequence)][k] == "" {
				r.t.Fatalf("input %d was sent again, but %q is not a record with a dead letter", in.sequence, in.retryOf)
			}
			docs = docs[k : k+1]
			again++
		}
		want, wantDead := h.similarOutcome(r, op, in, docs, in.sequence <= last)
		if again > 0 && len(want) == 1 && !strings.Contains(want[0], "null") {
			ownFormer++
		}
		a.payloads += len(docs)
		a.dead += len(wantDead)
		if !slices.Equal(in.records, want) || !maps.Equal(dead[in.sequence], wantDead) {
			a.wrong++
			a.found("input %d: the result has %.300q and the dead letters are %.300v, want %.300q and %.300v", in.sequence, in.records, dead[in.sequence], want, wantDead)
		}
		delete(without, in.sequence)
	}
	if a.wrong+len(without) > 0 {
		r.t.Errorf("of %d inputs %d are wrong, and %d have dead letters without a result:\n%s", len(inputs), a.wrong, len(without), strings.Join(a.examples, "\n"))
	}
	if h.hits < h.decided/10 || a.dead == 0 || again == 0 || ownFormer != again {
		r.t.Errorf("of %d records %d are near-duplicates, %d have dead letters, and %d were sent again, of which %d are duplicates", h.decided, h.hits, a.dead, again, ownFormer)
	}
	r.t.Logf("%d inputs, %d records, %d decided, %d near-duplicates, %d dead letters, %d sent again", len(inputs), a.payloads, h.decided, h.hits, a.dead, again)
	r.enter("with a state: the filter fails, results are too large, SIGKILL of all workers", kills, a)
}

func parsed(sequence string) uint64 {
	n, _ := strconv.ParseUint(sequence, 10, 64) // 0 is no input
	return n
}

// similarOutcome returns the records that the result of an input must have, and its dead letters. Call it for each input in stream order.
func (h *history) similarOutcome(r *rig, op operator.Stateful, in *decidedInput, docs []similar, late bool) (records []string, dead letters) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(in.subject)) // never fails
	partition := fmt.Sprint(hash.Sum32()%defaultPartitions, ".")
	for k, d := range docs {
		if len(d.Text) < shortText {
			continue
		}
		value := h.verdict(op, partition, neardup.Position{Sequence: in.sequence, Record: uint64(k)}, []byte(d.Text))
		if reason := d.reason(late); reason != "" {
			if dead == nil {
				dead = letters{}
			}
			body := wholeInput
			if d.Pad == "" {
				line, _ := json.Marshal(d) // two strings
				body = string(line)
			}
			dead[k] = reason + " " + body
			continue
		}
		record, err := similarResult(fmt.Appendf(nil, `{"record":%d,%s`, k, operator.JSON.Append(nil, r.ops, len(d.Text), [][]byte{value})[1:]))
		if err != nil {
			r.t.Fatal(err)
		}
		records = append(records, record)
	}
	return records, dead
}
