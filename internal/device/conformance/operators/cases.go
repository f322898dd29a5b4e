// Package operators creates cases for the conformance suite from Millrace's operators. It combines the payload sets of
// package corpus with the results that the operators' reference computes for them.
//
// The tests of packages cuda, host and sim use it. Start reading with Cases.
package operators

import (
	"fmt"

	"millrace/internal/corpus"
	"millrace/internal/device/conformance"
	"millrace/internal/operator"
)

// specs are the operators for which cases are created, with each payload set. They include minhash with the default
// parameters, with the smallest ones, and with the longest shingle.
var specs = []string{
	"crc32c",
	"minhash",
	"minhash?k=1&hashes=1&seed=0",
	"minhash?k=256&hashes=3&seed=18446744073709551615",
}

// wide has the maximum number of hashes. The reference is slow with it, so it is used with one set only.
const wide = "minhash?k=5&hashes=1024&seed=7"

// Cases returns cases for every operator with every payload set created from seed, except for those that keep refuses; nil keeps all.
// Computing all expected results takes about a second on one core. Cases fails if an operator's spec is invalid.
func Cases(seed uint64, keep func(spec string, set corpus.Set) bool) ([]conformance.Case, error) {
	var all []conformance.Case
	for _, set := range corpus.Sets(seed) {
		for _, spec := range specs {
			if keep != nil && !keep(spec, set) {
				continue
			}
			c, err := makeCase(spec, set)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	c, err := makeCase(wide, corpus.Set{Name: "lengths", Payloads: corpus.Lengths(seed, 300)})
	if err != nil {
		return nil, err
	}
	return append(all, c), nil
}

// Variants returns the operator names under which a kernel library offers minhash with a particular kind of kernel.
// They take minhash's parameters and give its results. Only GPUs have them. A GPU that lacks a required feature refuses
// a variant with device.ErrUnavailable.
func Variants() []string {
	return []string{"minhash:plain", "minhash:warp-specialized", "minhash:cluster"}
}

// ForVariant returns minhash's cases among all, renamed for the operator with that name.
func ForVariant(name string, all []conformance.Case) []conformance.Case {
	var renamed []conformance.Case
	for _, c := range all {
		if c.Name == "minhash" {
			c.Name = name
			renamed = append(renamed, c)
		}
	}
	return renamed
}

// makeCase computes the expected results of a set with the reference.
func makeCase(spec string, set corpus.Set) (conformance.Case, error) {
	op, err := operator.Parse(spec)
	if err != nil {
		return conformance.Case{}, fmt.Errorf("operator %q: %w", spec, err)
	}
	c := conformance.Case{Label: op.String() + " of " + set.Name, Name: op.Name(), Params: op.Params(), Rows: set.Payloads}
	for _, payload := range set.Payloads {
		c.Want = op.AppendReference(c.Want, payload)
	}
	return c, nil
}
