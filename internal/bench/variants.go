package bench

import (
	"bytes"
	"context"
	"fmt"
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
		plain := t.variant("plain", size, nil)
		plain.c.Reference = true
		others := []*variantFlow{t.variant("warp-specialized", size, plain), t.variant("cluster", size, plain)}
		rows := []*Case{plain.c, others[0].c, others[1].c}
		if err := t.Measure(ctx, rows...); err != nil {
			return err
		}
		for _, c := range rows {
			c.ratio(figureOverPlain, "x", plain.c.seconds, c.seconds)
		}
		t.Report(rows...)
	}
	return nil
}

// variantFlow is a flow that keeps the results of one batch with a known seed, to compare variants byte by byte.
type variantFlow struct {
	c       *Case
	f       *flow
	results []byte
}

// variant makes a case of a minhash kernel with the worker's schedule. The check against the reference looks at a
// sample, so one batch is also compared as a whole with the plain kernel's.
func (t *target) variant(name string, size int, plain *variantFlow) *variantFlow {
	op := variant{Operator: Parse(minhashSpec)[0], kernel: "minhash:" + name}
	l := newDocuments([]operator.Operator{op}, size, true)
	c, f := t.flow(name, l, t.schedule())
	v := &variantFlow{c: c, f: f}
	seed := derive(t.Seed, size)
	c.Measure = func(ctx context.Context, c *Case, roundSeed uint64) error {
		if v.results == nil {
			if err := v.keep(ctx, l, seed); err != nil {
				return err
			}
			if plain != nil && plain.results != nil && !bytes.Equal(v.results, plain.results) {
				return errWrong{fmt.Errorf("WRONG RESULT: %s differs from %s over the same batch", v.c.Row.Name, plain.c.Row.Name)}
			}
		}
		return f.measure(ctx, c, roundSeed)
	}
	return v
}

// keep runs one batch of seed and keeps its results.
func (v *variantFlow) keep(ctx context.Context, l load, seed uint64) error {
	return v.f.t.withPipeline(v.f.cfg, func(p *streams.Pipeline) error {
		b, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		if err := l.fill(b, seed); err != nil {
			return err
		}
		if err := b.Submit(streams.ClosedByBytes); err != nil {
			return err
		}
		back, _, err := receive(ctx, p)
		if err != nil {
			return err
		}
		v.results = bytes.Clone(back.Results(0))
		return l.verify(back, seed)
	})
}
