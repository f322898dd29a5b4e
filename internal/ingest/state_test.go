package ingest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/corpus"
	"millrace/internal/filter"
	"millrace/internal/frame"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/natstest"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
	"millrace/internal/streams"
)

// stateRig changes r to records in lines with the operator neardup. A generation has few records, so the state drops some.
func stateRig(t *testing.T, r *rig, records int) {
	t.Helper()
	r.operators("crc32c,neardup?bands=8&rows=2&k=5")
	r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: 65536, MaxBytes: 64 << 20}
	r.opts.State = &lease.StateOptions{Operator: r.opts.Operators[1].(operator.Stateful), Records: records, Bytes: 1 << 30, Standby: true}
	r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true })
}

// nearDuplicates returns a message with lines, of which many are edited or exact copies of earlier ones.
func nearDuplicates(i int) []byte {
	var b bytes.Buffer
	for k := range 1 + i%7 {
		n := 7*i + k
		text := corpus.Text(uint64(n*n%(40+n/2))+1, 60)
		text = bytes.ReplaceAll(text, []byte("\n"), []byte(" "))
		if n%3 == 0 && len(text) > 20 {
			copy(text[n%20:], "edited")
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// verdictsOf returns the expected verdicts on the records of all messages that are stored for a partition. It follows the rule with the
// reference, one record after the other, and takes the records for which asked is true. Others have the zero Verdict.
func (r *rig) verdictsOf(partition int, asked func(record int) bool) map[uint64][]neardup.Verdict {
	r.Helper()
	all := map[uint64][]neardup.Verdict{}
	op := r.opts.State.Operator
	reference := neardup.NewReference(natstest.Must(neardup.ParseBlock(op.Params(), r.opts.State.Records))(r))
	for _, m := range r.Stored(r.opts.Stream) {
		if !strings.HasPrefix(m.Subject, fmt.Sprintf("%d.", partition)) {
			continue
		}
		for i, line := range linesOf(m.Data) {
			if !asked(i) {
				all[m.Sequence] = append(all[m.Sequence], neardup.Verdict{})
				continue
			}
			var keys []uint64
			for k := op.Kernel().AppendReference(nil, line); len(k) > 0; k = k[neardup.KeyBytes:] {
				keys = append(keys, binary.LittleEndian.Uint64(k))
			}
			all[m.Sequence] = append(all[m.Sequence], reference.Apply(neardup.Position{Sequence: m.Sequence, Record: uint64(i)}, keys))
		}
	}
	return all
}

func linesOf(body []byte) [][]byte {
	return bytes.Split(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
}

// verdicts returns the expected JSON results of all messages that are stored for a partition.
func (r *rig) verdicts(partition int) map[uint64]string {
	r.Helper()
	bodies, all := map[uint64]string{}, r.verdictsOf(partition, func(int) bool { return true })
	for _, m := range r.Stored(r.opts.Stream) {
		var body strings.Builder
		for i, v := range all[m.Sequence] {
			line := linesOf(m.Data)[i]
			body.Write(operator.JSON.Append(nil, r.opts.Operators, len(line), [][]byte{
				r.opts.Operators[0].AppendReference(nil, line), v.AppendValue(nil),
			}))
			body.WriteByte('\n')
		}
		if body.Len() > 0 {
			bodies[m.Sequence] = body.String()
		}
	}
	return bodies
}

// wantVerdicts checks that each input has exactly one result, which has the verdicts on its records. The inputs in dead have a dead letter
// instead, although the state has their records.
func (r *rig) wantVerdicts(dead ...uint64) {
	r.Helper()
	want, hits := map[uint64]string{}, 0
	for p := range r.opts.Partitions {
		for sequence, body := range r.verdicts(p) {
			want[sequence] = body
			hits += strings.Count(body, `"bands"`)
		}
	}
	for _, sequence := range dead {
		delete(want, sequence)
	}
	letters := slices.Sorted(maps.Keys(r.deadLetters()))
	if !slices.Equal(letters, dead) {
		r.Errorf("inputs %d have dead letters, want %d", letters, dead)
	}
	inputs := len(want)
	r.Logf("%d inputs, %d near-duplicates", inputs, hits)
	for sequence, msgs := range r.stored("results.>") {
		if len(msgs) > 1 || want[sequence] == "" {
			r.Fatalf("input %d has %d results, one was expected: %t", sequence, len(msgs), want[sequence] != "")
		}
		if string(msgs[0].Data()) != want[sequence] {
			r.Fatalf("the result of input %d is\n%swant\n%s", sequence, msgs[0].Data(), want[sequence])
		}
		delete(want, sequence)
	}
	if inputs == 0 || len(want) > 0 || hits < inputs/10 {
		r.Errorf("%d of %d inputs have no result; %d records are near-duplicates", len(want), inputs, hits)
	}
}

// TestVerdicts processes near-duplicates with several workers, one after the other.
func TestVerdicts(t *testing.T) {
	eachCommit(t, 2, func(t *testing.T, r *rig) {
		stateRig(t, r, 300)
		const n = 600
		for round := range 3 {
			r.publishFrom(round*n, (round+1)*n, nearDuplicates)
			r.process(hostDevice(t), streams.Options{BatchPayloads: 16 << (2 * round)})
		}
		r.wantVerdicts()
	})
}

// TestDeduplicated shows that with a filter on verdicts the result stream has the records without an earlier near-duplicate, and that records
// that another condition leaves out never reach the state.
func TestDeduplicated(t *testing.T) {
	eachCommit(t, 2, func(t *testing.T, r *rig) {
		stateRig(t, r, 1000)
		r.opts.Filter = natstest.Must(filter.New("record.number != 1 && neardup.duplicate_of == null", r.opts.Operators, nil))(t)
		const n = 500
		for round := range 2 {
			r.publishFrom(round*n, (round+1)*n, nearDuplicates)
			r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
		}
		want := map[uint64][]int{} // records in the result
		kept := 0
		for p := range r.opts.Partitions {
			verdicts := r.verdictsOf(p, func(record int) bool { return record != 1 })
			for sequence, all := range verdicts {
				want[sequence] = []int{}
				for record, v := range all {
					if record != 1 && v.Bands == 0 {
						want[sequence] = append(want[sequence], record)
						kept++
					}
				}
			}
		}
		got := r.stored("results.>")
		for sequence, records := range want {
			if len(got[sequence]) != 1 {
				t.Fatalf("input %d has %d results", sequence, len(got[sequence]))
			}
			if numbers := numbersOf(t, got[sequence][0].Data()); !slices.Equal(numbers, records) {
				t.Fatalf("the result of input %d has the records %v, want %v", sequence, numbers, records)
			}
		}
		if len(got) != len(want) || kept < n/4 || kept > 3*n {
			t.Errorf("%d results of %d inputs, with %d records", len(got), len(want), kept)
		}
	})
}

// numbersOf returns the numbers of the records in a JSON result.
func numbersOf(t *testing.T, body []byte) []int {
	t.Helper()
	numbers := []int{}
	for line := range bytes.Lines(body) {
		var r struct{ Record int }
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, r.Record)
	}
	return numbers
}
