package operator

import (
	"encoding/binary"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/neardup"
)

// neardupRows is the number of rows whose keys one core computes at a time.
const neardupRows = 64

// neardupHost is the host kernel of neardup. It writes signatures to scratch with minhash's host kernel, and then computes their keys.
type neardupHost struct{ description *compiled.Description }

func (neardupHost) Name() string { return neardupName }

func (n neardupHost) Bind(params []byte) (device.BoundHostKernel, error) {
	p, err := neardupParametersOf(n.description, params)
	if err != nil {
		return nil, device.Errorf("bind neardup", "", device.ErrInvalid, "%v", err)
	}
	return neardupKernel{p.keys, minhashKernel{minhashParameters: p.minhash, sign: minhashVariants[0].Sign, pieceUnits: minhashPieceUnits}}, nil
}

// neardupKernel is the kernel with its parameters.
type neardupKernel struct {
	keys    neardup.Parameters
	minhash minhashKernel
}

// Needs requests scratch for the signatures, followed by the scratch of minhash.
func (n neardupKernel) Needs(s device.Shape) device.Needs {
	minhash := n.minhash.Needs(s)
	return device.Needs{Scratch: minhash.Result + minhash.Scratch, Result: 8 * n.keys.Bands * s.Rows}
}

func (n neardupKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	b, err := prepare(neardupName, n, rows, offsets, scratch, result, n.minhash.pieceUnits)
	if err != nil {
		return err
	}
	count := b.shape().Rows
	signatures := scratch[:count*n.minhash.stride()]
	if err := n.minhash.Run(rows, offsets, scratch[len(signatures):], signatures, parallel); err != nil {
		return err
	}
	parallel((count+neardupRows-1)/neardupRows, func(piece int) {
		n.appendKeys(result, signatures, piece*neardupRows, min((piece+1)*neardupRows, count))
	})
	return nil
}

// appendKeys writes the keys of the rows [from, to) to result.
func (n neardupKernel) appendKeys(result, signatures []byte, from, to int) {
	var (
		signature [neardup.MaxHashes]uint32
		memory    [neardup.MaxBands]uint64
		stride    = n.minhash.stride()
	)
	for row := from; row < to; row++ {
		for i := range stride / 4 {
			signature[i] = binary.LittleEndian.Uint32(signatures[row*stride+4*i:])
		}
		for b, key := range n.keys.AppendKeys(memory[:0], signature[:stride/4]) {
			binary.LittleEndian.PutUint64(result[8*(row*n.keys.Bands+b):], key)
		}
	}
}

// sized returns the parameters of a state.
func (n neardupKernel) sized(s device.StateSize) neardup.Parameters {
	p := n.keys
	p.Records = s.Records
	return p
}

// NewState implements device.StateHostKernel.
func (n neardupKernel) NewState(s device.StateSize) (device.State, error) {
	return neardup.NewState(n.sized(s), s.Batch)
}

// StateBytes implements device.StateHostKernel.
func (n neardupKernel) StateBytes(s device.StateSize) (int64, error) {
	return neardup.StateBytes(n.sized(s), s.Batch)
}
