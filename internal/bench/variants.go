package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

// variant is an operator by another kernel that the device's library has beside the one that bears its name. It has
// the same parameters and results.
type variant struct {
	operator.Operator
	kernel string
}

// Name implements operator.Operator.
func (v variant) Name() string { return v.kernel }

// String implements operator.Operator. Package operator does not parse it.
func (v variant) String() string {
	_, parameters, _ := strings.Cut(v.Operator.String(), "?")
	return v.kernel + "?" + parameters
}

// minhashSpec is minhash with the parameters that figures are given for.
const minhashSpec = "minhash?k=24&hashes=128"

// parse is operator.ParseList of a list that this package wrote itself.
func parse(list string) []operator.Operator {
	ops, err := operator.ParseList(list)
	if err != nil {
		panic("bench: " + err.Error())
	}
	return ops
}

func runVariants(ctx context.Context, t *target) error {
	for _, size := range t.sizes() {
		plain := t.variant("plain", size, nil)
		plain.c.base = true
		others := []*variantFlow{t.variant("warp-specialized", size, plain), t.variant("cluster", size, plain)}
		rows := []*contender{plain.c, others[0].c, others[1].c}
		if err := t.race(ctx, rows...); err != nil {
			return err
		}
		for _, c := range rows {
			c.compare(figureOverPlain, "x", plain.c.seconds, c.seconds)
		}
		t.finish(rows...)
	}
	return nil
}

// variantFlow is a flow that keeps what one batch of a known seed gave, to compare variants whole.
type variantFlow struct {
	c       *contender
	f       *flow
	results []byte
}

// variant makes a contender of a minhash kernel, on the worker's schedule. Beside the check against the reference,
// which looks at a sample, it compares one batch whole with the plain kernel's.
func (t *target) variant(name string, size int, plain *variantFlow) *variantFlow {
	op := variant{Operator: parse(minhashSpec)[0], kernel: "minhash:" + name}
	l := newDocuments([]operator.Operator{op}, size, true)
	c, f := t.flow(groupSchedules, name, l, t.schedule())
	v := &variantFlow{c: c, f: f}
	seed := derive(t.Seed, size)
	c.measure = func(ctx context.Context, c *contender, roundSeed uint64) error {
		if v.results == nil {
			if err := v.keep(ctx, l, seed); err != nil {
				return err
			}
			if plain != nil && plain.results != nil && !bytes.Equal(v.results, plain.results) {
				return errWrong{fmt.Errorf("WRONG RESULT: %s differs from %s over the same batch", v.c.row.Name, plain.c.row.Name)}
			}
		}
		return f.measure(ctx, c, roundSeed)
	}
	return v
}

// keep runs one batch of seed and keeps its results.
func (v *variantFlow) keep(ctx context.Context, l load, seed uint64) (err error) {
	p, err := streams.New(v.f.t.dev, v.f.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
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
}
