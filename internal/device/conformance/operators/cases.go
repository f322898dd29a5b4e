// Package operators makes cases for the conformance suite from Millrace's operators: the payload sets that
// find mistakes, and what the reference of each operator says they give.
package operators

import (
	"fmt"

	"millrace/internal/device/conformance"
	"millrace/internal/operator"
	"millrace/internal/operator/payloads"
)

// specs are the operators that a case is made for, over each payload set. minhash is here with the default
// parameters, with the smallest, and with the longest shingle.
var specs = []string{
	"crc32c",
	"minhash",
	"minhash?k=1&hashes=1&seed=0",
	"minhash?k=256&hashes=3&seed=18446744073709551615",
}

// wide has as many hashes as there may be. The reference is slow at it, so it gets one set.
const wide = "minhash?k=5&hashes=1024&seed=7"

// Cases gives every operator every payload set of package payloads made from seed. Computing what they must
// give takes about a second on one core. It fails if an operator's spec is not understood.
func Cases(seed uint64) ([]conformance.Case, error) {
	var all []conformance.Case
	for _, set := range payloads.Sets(seed) {
		for _, spec := range specs {
			c, err := makeCase(spec, set)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	c, err := makeCase(wide, payloads.Set{Name: "lengths", Payloads: payloads.Lengths(seed, 300)})
	if err != nil {
		return nil, err
	}
	return append(all, c), nil
}

// Variants are the names under which a kernel library offers minhash by kernels of one kind. They take minhash's
// parameters and give its results. Only a GPU has them, and one that lacks what a kind needs refuses it with
// device.ErrUnavailable.
func Variants() []string {
	return []string{"minhash:plain", "minhash:warp-specialized", "minhash:cluster"}
}

// ForVariant is minhash's cases among all, for the operator of that name.
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

// makeCase runs the reference over a set.
func makeCase(spec string, set payloads.Set) (conformance.Case, error) {
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
