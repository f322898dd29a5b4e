package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/internal/corpus"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// stateRecords is the size of the generations of states. It is so small that states drop many generations in each test.
const stateRecords = 200

// nearDuplicates configures workers to decide which records are near-duplicates of earlier ones. The workers have batches of different sizes.
// It returns a function that creates the i-th frame from a seed. Its records are lines; see similarText.
func (r *rig) nearDuplicates() func(i int) *nats.Msg {
	r.t.Helper()
	r.operators("crc32c,neardup?bands=8&rows=2&k=5")
	r.set("MILLRACE_FRAMING=newline_delimited", fmt.Sprintf("MILLRACE_STATE_RECORDS=%d", stateRecords))
	r.batches, r.lead = []int{256, 16, 1000}, frameLead
	r.history = &history{records: stateRecords}
	r.split = func(_ nats.Header, body []byte) (records [][]byte, bad *damage) { return splitLines(body), nil }
	return func(i int) *nats.Msg {
		rng := rand.New(rand.NewPCG(r.seed, uint64(i)))
		const perFrame = 9
		var b bytes.Buffer
		for range rng.IntN(perFrame) {
			b.Write(append(r.similarText(rng, i*perFrame), '\n'))
		}
		return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%7), Data: b.Bytes(), Header: nats.Header{"Input": {fmt.Sprint(i)}}}
	}
}

// similarText returns a line without its end. In a sequence of such texts, numbered by n, most texts are edited or exact copies of earlier
// texts. A state may have dropped the generation of the earlier text.
func (r *rig) similarText(rng *rand.Rand, n int) []byte {
	const partitions = 4
	drawn := n - rng.IntN(min(n, 6*partitions*stateRecords)+1)
	text := bytes.ReplaceAll(corpus.Text(uint64(drawn)/3+1, 80), []byte("\n"), []byte(" "))
	if at := rng.IntN(3 * len(text)); at < len(text) {
		text = append(text[:at:at], append([]byte("edited"), text[at:]...)...)
	}
	return text
}

// history computes the values of a stateful operator in an undisturbed run.
type history struct {
	poison     func(at neardup.Position, payload []byte) bool // whether a record fails; nil if none does
	records    int                                            // size of a generation
	partitions map[string]*neardup.Reference
	decided    int // number of records
	hits       int // number of near-duplicates among them
}

// verdict returns the value of the next record. The subject begins with the number of the partition.
func (h *history) verdict(op operator.Stateful, subject string, at neardup.Position, payload []byte) []byte {
	partition, _, _ := strings.Cut(subject, ".")
	reference := h.partitions[partition]
	if reference == nil {
		reference = neardup.NewReference(h.parameters(op))
		if h.partitions == nil {
			h.partitions = map[string]*neardup.Reference{}
		}
		h.partitions[partition] = reference
	}
	var keys []uint64
	for k := op.Kernel().AppendReference(nil, payload); len(k) > 0; k = k[8:] {
		keys = append(keys, binary.LittleEndian.Uint64(k))
	}
	verdict := reference.Apply(at, keys)
	h.decided++
	if verdict.Bands > 0 {
		h.hits++
	}
	return verdict.AppendValue(nil)
}

func (h *history) parameters(op operator.Operator) neardup.Parameters {
	var p [4]uint32
	for i := range p {
		p[i] = binary.LittleEndian.Uint32(op.Params()[4*i:])
	}
	return neardup.Parameters{Bands: int(p[0]), Rows: int(p[1]), K: int(p[2]), Seed: p[3], Records: h.records}
}

// wantHistory checks that the audit has shown something: many records are near-duplicates, and states have dropped generations.
func (r *rig) wantHistory() {
	r.t.Helper()
	h := r.history
	r.t.Logf("%d records in %d partitions, %d of them near-duplicates, about %d generations per partition", h.decided, len(h.partitions), h.hits, h.decided/stateRecords/max(len(h.partitions), 1))
	if h.hits < h.decided/10 || h.hits > h.decided*9/10 || h.decided < 3*len(h.partitions)*stateRecords {
		r.t.Errorf("of %d records in %d partitions, %d are near-duplicates, so the test shows little", h.decided, len(h.partitions), h.hits)
	}
}
