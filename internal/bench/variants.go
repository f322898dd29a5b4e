package bench

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

// variant is an operator that uses another kernel of the device's library than the one with its name. Parameters and
// results are the same.
type variant struct {
	operator.Operator
	kernel string
}

// Name implements operator.Operator.
func (v variant) Name() string { return v.kernel }

// String implements operator.Operator. Package operator can't parse it.
func (v variant) String() string {
	_, parameters, _ := strings.Cut(v.Operator.String(), "?")
	return v.kernel + "?" + parameters
}

// minhashSpec is minhash with the parameters of all figures.
const minhashSpec = "minhash?k=24&hashes=128"

func runVariants(ctx context.Context, t *target) error {
	for _, size := range t.sizes() {
		var rows []*Case
		first := &firstBatch{}
		for _, name := range []string{"plain", "warp-specialized", "cluster"} {
			rows = append(rows, t.variant(name, size, first))
		}
		plain := rows[0]
		plain.Reference = true
		if err := t.Measure(ctx, rows...); err != nil {
			return err
		}
		for _, c := range rows {
			c.ratio(figureOverPlain, "x", plain.seconds, c.seconds)
		}
		t.Report(rows...)
	}
	return nil
}

// firstBatch is the results of a batch by the kernel that is measured first in a round.
type firstBatch struct {
	name    string
	seed    uint64
	results []byte
}

// variant makes a case of a minhash kernel with the worker's schedule. The check against the reference looks at a
// sample, so the first batch of every round is also compared as a whole with the results of the first kernel.
func (t *target) variant(name string, size int, first *firstBatch) *Case {
	op := variant{Operator: Parse(minhashSpec)[0], kernel: "minhash:" + name}
	c, f := t.flow(name, newDocuments([]operator.Operator{op}, size, true), t.schedule())
	f.check = func(held []*streams.Batch, seed uint64) error {
		slot0 := held[slices.IndexFunc(held, func(b *streams.Batch) bool { return b.Slot() == 0 })].Results(0)
		if first.results == nil || first.seed != seed {
			first.name, first.seed, first.results = name, seed, bytes.Clone(slot0)
		}
		if !bytes.Equal(slot0, first.results) {
			return errWrong{fmt.Errorf("WRONG RESULT: %s differs from %s over the same batch", name, first.name)}
		}
		return nil
	}
	return c
}
