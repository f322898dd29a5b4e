package bench

import (
	"context"
	"errors"
	"strings"

	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// variant is an operator that uses a different kernel of the device's library. Parameters and results are the same.
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

// minhashSpec is minhash with the parameters that all figures use.
const minhashSpec = "minhash?k=24&hashes=128"

func runVariants(ctx context.Context, t *target) error {
	for _, size := range t.sizes() {
		var rows []*Case
		same := &sameResults{}
		for _, name := range []string{"plain", "warp-specialized", "cluster"} {
			rows = append(rows, t.variant(name, size, same))
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

// variant returns a case of a minhash kernel with the worker's schedule. In every round, all results of the first batch
// are also compared with those of the first kernel.
func (t *target) variant(name string, size int, same *sameResults) *Case {
	op := variant{Operator: Parse(minhashSpec)[0], kernel: "minhash:" + name}
	c, f := t.flow(name, newDocuments([]operator.Operator{op}, size, true), t.schedule())
	f.check = func(held []*streams.Batch, seed uint64) error { return same.check(name, seed, held[:1]) }
	c.Measure = func(ctx context.Context, c *Case, seed uint64) error {
		return t.withoutVariant(f.measure(ctx, c, seed))
	}
	return c
}

// withoutVariant returns err, or the reason that a person understands if the device has no kernel of that name.
func (t *target) withoutVariant(err error) error {
	switch {
	case !errors.Is(err, device.ErrNotFound):
		return err
	case t.info.Kind == "cuda":
		return Unable("this kernel library doesn't have the kernel: build the one of the same commit")
	}
	return Unable("this compares kernels of a GPU, and device %s has none of them", t.info.ID)
}
