package ingest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/corpus"
	"millrace/internal/frame"
	"millrace/internal/ingest/lease"
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

// verdicts returns the expected JSON results of all messages that are stored for a partition, in order. It follows the rule with the
// reference, one record after the other.
func (r *rig) verdicts(partition int) (bodies map[uint64]string) {
	r.Helper()
	bodies = map[uint64]string{}
	op := r.opts.Operators[1].(operator.Stateful)
	block := op.Params()
	p := neardup.Parameters{
		Bands: int(binary.LittleEndian.Uint32(block)), Rows: int(binary.LittleEndian.Uint32(block[4:])), K: int(binary.LittleEndian.Uint32(block[8:])),
		Seed: binary.LittleEndian.Uint32(block[12:]), Records: r.opts.State.Records,
	}
	reference := neardup.NewReference(p)
	for _, m := range r.Stored(r.opts.Stream) {
		if !strings.HasPrefix(m.Subject, fmt.Sprintf("%d.", partition)) {
			continue
		}
		var body strings.Builder
		for i, line := range bytes.Split(bytes.TrimSuffix(m.Data, []byte("\n")), []byte("\n")) {
			var keys []uint64
			for k := op.Kernel().AppendReference(nil, line); len(k) > 0; k = k[8:] {
				keys = append(keys, binary.LittleEndian.Uint64(k))
			}
			verdict := reference.Apply(neardup.Position{Sequence: m.Sequence, Record: uint64(i)}, keys)
			body.Write(operator.JSON.Append(nil, r.opts.Operators, len(line), [][]byte{
				r.opts.Operators[0].AppendReference(nil, line), verdict.AppendValue(nil),
			}))
			body.WriteByte('\n')
		}
		bodies[m.Sequence] = body.String()
	}
	return bodies
}

// wantVerdicts checks that each input has exactly one result, which has the verdicts on its records.
func (r *rig) wantVerdicts() {
	r.Helper()
	want, hits := map[uint64]string{}, 0
	for p := range r.opts.Partitions {
		for sequence, body := range r.verdicts(p) {
			want[sequence] = body
			hits += strings.Count(body, `"bands"`)
		}
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

// TestVerdicts processes near-duplicates with several workers, one after the other. The second input stream replays nothing.
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
