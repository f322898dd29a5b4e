package operator

import (
	"encoding/binary"

	"millrace/internal/arrowipc"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/neardup"
)

// neardupName is the name of the operator neardup, which reports for each record whether a near-duplicate came before it. Its kernel
// computes keys, one for each band of a minhash signature. The values are verdicts. Package neardup defines keys and verdicts.
const neardupName = "neardup"

// neardupParameters are the parameters of neardup's kernel.
type neardupParameters struct {
	keys    neardup.Parameters // Records isn't used, because keys don't depend on it
	minhash *minhashParameters
}

// neardupParametersOf returns the parameters in a block, or an error if the block isn't valid.
func neardupParametersOf(d *compiled.Description, block []byte) (neardupParameters, error) {
	o, err := d.BindBlock(block)
	if err != nil {
		return neardupParameters{}, err
	}
	p := neardup.Parameters{
		Bands: int(o.Value(0)), Rows: int(o.Value(1)), K: int(o.Value(2)), Seed: uint32(o.Value(3)),
		Records: 1, // any valid number
	}
	if err := p.Validate(); err != nil {
		return neardupParameters{}, err
	}
	return neardupParameters{p, newMinhashParameters(p.K, p.Bands*p.Rows, p.Seed)}, nil
}

// neardupReference is the reference of neardup's kernel.
type neardupReference struct {
	keys    neardup.Parameters
	minhash minhashReference
}

func newNeardupReference(d *compiled.Description, block []byte) neardupReference {
	p, err := neardupParametersOf(d, block)
	if err != nil {
		panic(err) // the block is from a bound operator
	}
	return neardupReference{p.keys, minhashReference{p.minhash}}
}

// append implements referenceFunc.
func (n neardupReference) append(dst, payload []byte) []byte {
	for _, key := range n.keys.AppendKeys(nil, n.minhash.signature(payload)) {
		dst = binary.LittleEndian.AppendUint64(dst, key)
	}
	return dst
}

// nearDuplicates is the operator with its parameters. It implements Stateful, Variable and Columnar.
type nearDuplicates struct {
	Operator // the kernel
	bands    int
	column   arrowipc.Column
}

func newNeardup(kernel *builtIn) *nearDuplicates {
	return &nearDuplicates{Operator: kernel, bands: int(kernel.Value(0)), column: arrowipc.Column{
		Name: kernel.Name(), Spec: kernel.String(), Kind: arrowipc.Struct, Width: neardup.ValueBytes, Fields: []arrowipc.Field{
			{Name: "duplicate_of", Type: arrowipc.PositionType},
			{Name: "bands", Type: arrowipc.Uint32Type, At: 16},
			{Name: "also", Type: arrowipc.PositionsType, At: 20},
		},
	}}
}

// Kernel implements Stateful.
func (n *nearDuplicates) Kernel() Operator { return n.Operator }

// Stride implements Operator.
func (n *nearDuplicates) Stride() int { return neardup.ValueBytes }

// MaxJSON implements Operator. A position has more than stringJSON bytes of JSON per byte, so MaxJSON includes the difference.
func (n *nearDuplicates) MaxJSON() int {
	strings, _ := n.MaxStrings()
	return neardup.MaxJSON(n.bands) - stringJSON*strings
}

// AppendJSON implements Operator.
func (n *nearDuplicates) AppendJSON(dst, value []byte) []byte {
	strings, _ := n.MaxStrings()
	if extra := len(value) - neardup.ValueBytes; extra < 0 || extra > strings || extra%neardup.PositionBytes != 0 {
		fixed(value, neardup.ValueBytes) // panics
	}
	return neardup.AppendJSON(dst, value)
}

// AppendReference implements Operator. It panics, because a value depends on other records.
func (n *nearDuplicates) AppendReference([]byte, []byte) []byte {
	panic("operator: neardup has no reference for one record: use its kernel and neardup.Reference")
}

// MaxStrings implements Variable. The byte string of a value has at most one position for each hit except the first.
func (n *nearDuplicates) MaxStrings() (limit, perByte int) {
	return neardup.PositionBytes * (n.bands - 1), 0
}

// AppendStrings implements Variable. It panics, because the results of the kernel have no byte strings.
func (n *nearDuplicates) AppendStrings([]byte, []byte, []uint32, int) []byte {
	panic("operator: the keys of neardup have no byte strings")
}

// ArrowColumn implements Columnar.
func (n *nearDuplicates) ArrowColumn() arrowipc.Column { return n.column }
