package operator

import (
	"encoding/binary"
	"strconv"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/neardup"
)

// neardupName is the name of the operator neardup: whether a near-duplicate of a record came before, and which. Its kernel computes the keys
// of a record from the signature of minhash, and its state is an index. Package neardup defines both.
const neardupName = "neardup"

// neardupOperator implements Stateful. Its values are verdicts; see neardup.Verdict.AppendValue.
type neardupOperator struct{ kernel *builtIn }

// Name implements Operator.
func (n neardupOperator) Name() string { return n.kernel.Name() }

// String implements Operator.
func (n neardupOperator) String() string { return n.kernel.String() }

// Params implements Operator. They are those of the kernel.
func (n neardupOperator) Params() []byte { return n.kernel.Params() }

// Kernel implements Stateful.
func (n neardupOperator) Kernel() Operator { return n.kernel }

// Declaration implements Declared. Its parameters are those of the operator, and its fields are those of the kernel.
func (n neardupOperator) Declaration() *compiled.Operator { return n.kernel.declared }

// Stride implements Operator.
func (n neardupOperator) Stride() int { return neardup.RecordBytes }

// Needs implements Operator.
func (n neardupOperator) Needs(s device.Shape) device.Needs { return n.kernel.Needs(s) }

// bands returns the number of a record's keys.
func (n neardupOperator) bands() int { return n.kernel.stride / neardup.KeyBytes }

// MaxStrings implements Variable. A record has at most one hit for each band.
func (n neardupOperator) MaxStrings() (limit, perByte int) {
	return (n.bands() - 1) * neardup.PositionBytes, 0
}

// AppendStrings implements Variable. The byte strings are in values, and kernels don't compute them.
func (n neardupOperator) AppendStrings([]byte, []byte, []uint32, int) []byte {
	panic("operator: the results of the kernel of neardup have no byte strings")
}

// AppendReference implements Operator.
func (n neardupOperator) AppendReference([]byte, []byte) []byte {
	panic("operator: the value of neardup depends on other records")
}

// AppendJSON implements Operator.
func (n neardupOperator) AppendJSON(dst, value []byte) []byte {
	dst = append(dst, `{"duplicate_of":`...)
	if binary.LittleEndian.Uint64(value) == 0 {
		return append(dst, "null}"...)
	}
	dst = appendPositionJSON(dst, value)
	dst = append(dst, `,"bands":`...)
	dst = strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(value[16:])), 10)
	dst = append(dst, `,"also":[`...)
	for also := value[neardup.RecordBytes:]; len(also) > 0; also = also[neardup.PositionBytes:] {
		if len(also) < len(value)-neardup.RecordBytes {
			dst = append(dst, ',')
		}
		dst = appendPositionJSON(dst, also)
	}
	return append(dst, "]}"...)
}

func appendPositionJSON(dst, position []byte) []byte {
	dst = append(dst, `{"sequence":`...)
	dst = strconv.AppendUint(dst, binary.LittleEndian.Uint64(position), 10)
	dst = append(dst, `,"record":`...)
	dst = strconv.AppendUint(dst, binary.LittleEndian.Uint64(position[8:]), 10)
	return append(dst, '}')
}

// MaxJSON implements Operator.
func (n neardupOperator) MaxJSON() int {
	const digits = 20
	position := len(`{"sequence":,"record":},`) + 2*digits
	return len(`{"duplicate_of":,"bands":,"also":[]}`) + digits + n.bands()*position
}

// neardupHost is the host kernel of the first part.
type neardupHost struct{ description *compiled.Description }

func (neardupHost) Name() string { return neardupName }

func (n neardupHost) Bind(params []byte) (device.BoundHostKernel, error) {
	p, err := n.parameters(params)
	if err != nil {
		return nil, device.Errorf("bind neardup", "", device.ErrInvalid, "%v", err)
	}
	return neardupKernel{parameters: p, minhash: minhashKernel{
		minhashParameters: newMinhashParameters(p.K, p.Bands*p.Rows, p.Seed), sign: minhashVariants[0].Sign, pieceUnits: minhashPieceUnits,
	}}, nil
}

// parameters returns the parameters in a block, except for Records.
func (n neardupHost) parameters(block []byte) (p neardup.Parameters, err error) {
	o, err := n.description.BindBlock(block)
	if err != nil {
		return p, err
	}
	p = neardup.Parameters{Bands: int(o.Value(0)), Rows: int(o.Value(1)), K: int(o.Value(2)), Seed: uint32(o.Value(3)), Records: 1}
	return p, p.Validate()
}

// neardupReference returns a function that appends the keys of a payload.
func neardupReference(description *compiled.Description, block []byte) referenceFunc {
	p, err := neardupHost{description}.parameters(block)
	if err != nil {
		panic(err) // the block is from a bound operator
	}
	minhash := minhashReference{newMinhashParameters(p.K, p.Bands*p.Rows, p.Seed)}
	return func(dst, payload []byte) []byte {
		signature := make([]uint32, p.Bands*p.Rows)
		if len(payload) > 0 {
			minhash.sign(signature, payload)
		}
		for _, key := range p.AppendKeys(nil, signature) {
			dst = binary.LittleEndian.AppendUint64(dst, key)
		}
		return dst
	}
}

// neardupKernel is the kernel with its parameters. It implements device.StateHostKernel.
type neardupKernel struct {
	parameters neardup.Parameters
	minhash    minhashKernel
}

// Needs requests scratch for minhash and for its result.
func (n neardupKernel) Needs(s device.Shape) device.Needs {
	needs := n.minhash.Needs(s)
	return device.Needs{Scratch: needs.Result + needs.Scratch, Result: s.Rows * n.parameters.Bands * neardup.KeyBytes}
}

// keyRows is the number of rows whose keys are computed at a time.
const keyRows = 256

func (n neardupKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	b, err := prepare(neardupName, n, rows, offsets, scratch, result, minhashPieceUnits)
	if err != nil {
		return err
	}
	stride, count := n.minhash.stride(), b.shape().Rows
	signatures, rest := scratch[:count*stride], scratch[count*stride:]
	if err := n.minhash.Run(rows, offsets, rest, signatures, parallel); err != nil {
		return err
	}
	parallel((count+keyRows-1)/keyRows, func(piece int) {
		signature := make([]uint32, n.parameters.Bands*n.parameters.Rows)
		keys := make([]uint64, 0, n.parameters.Bands)
		for row := piece * keyRows; row < min((piece+1)*keyRows, count); row++ {
			for i := range signature {
				signature[i] = binary.LittleEndian.Uint32(signatures[row*stride+4*i:])
			}
			at := result[row*n.parameters.Bands*neardup.KeyBytes:]
			for i, key := range n.parameters.AppendKeys(keys[:0], signature) {
				binary.LittleEndian.PutUint64(at[i*neardup.KeyBytes:], key)
			}
		}
	})
	return nil
}

// sized returns the parameters with the size of a generation.
func (n neardupKernel) sized(s device.StateSize) neardup.Parameters {
	p := n.parameters
	p.Records = s.Records
	return p
}

// NewState implements device.StateHostKernel.
func (n neardupKernel) NewState(s device.StateSize) (device.State, error) {
	return neardup.NewState(n.sized(s), s.Batch)
}

// StateBytes implements device.StateHostKernel.
func (n neardupKernel) StateBytes(s device.StateSize) (int64, error) {
	return neardup.Bytes(n.sized(s), s.Batch)
}
