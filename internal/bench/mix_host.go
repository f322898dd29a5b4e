package bench

import (
	"encoding/binary"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// mixPieceBytes is the number of bytes of a batch that one core processes at a time; a multiple of 16.
const mixPieceBytes = 64 << 10

// HostKernels returns the kernels that the bench needs in addition to those of the operators, for devices that use the
// host's memory.
func HostKernels() []device.HostKernel {
	all := []device.HostKernel{mixHost{}}
	for _, k := range operator.HostKernels() {
		all = append(all, persistentHost{k, persistentIdle})
	}
	return all
}

type mixHost struct{}

// Name implements device.HostKernel.
func (mixHost) Name() string { return mixName }

// Bind implements device.HostKernel.
func (mixHost) Bind(params []byte) (device.BoundHostKernel, error) {
	if len(params) != mixBlockBytes {
		return nil, device.Errorf("bind mix", "", device.ErrInvalid,
			"the parameter block has %d bytes: give %d", len(params), mixBlockBytes)
	}
	rounds, factor := binary.LittleEndian.Uint32(params), binary.LittleEndian.Uint32(params[4:])
	if rounds > maxMixRounds || factor > maxScratchFactor {
		return nil, device.Errorf("bind mix", "", device.ErrInvalid,
			"%d rounds and a scratch factor of %d: give at most %d and %d", rounds, factor, maxMixRounds, maxScratchFactor)
	}
	return mixKernel{mix{rounds: int(rounds), scratchFactor: int(factor)}}, nil
}

type mixKernel struct{ mix }

// Run implements device.BoundHostKernel.
func (k mixKernel) Run(rows []byte, _ []uint32, scratch, result []byte, parallel device.Parallel) error {
	needs := k.Needs(device.Shape{Bytes: len(rows)})
	if len(scratch) < needs.Scratch || len(result) < needs.Result {
		return fmt.Errorf("mix over %d bytes got %d bytes of scratch and %d of result: it needs %d and %d",
			len(rows), len(scratch), len(result), needs.Scratch, needs.Result)
	}
	if len(rows) == 0 {
		return nil
	}
	source := rows
	if needs.Scratch > 0 {
		scratch[needs.Scratch-1] = 0 // so that a test detects memory that is too short
		source = scratch[:len(rows)]
		copy(source, rows)
	}
	pieces := (len(rows) + mixPieceBytes - 1) / mixPieceBytes
	parallel(pieces, func(i int) {
		low, high := i*mixPieceBytes, min((i+1)*mixPieceBytes, len(rows))
		k.piece(source[low:high], result[low:roundUp(high, wordBytes)])
	})
	return nil
}

// piece mixes src into dst, four words at a time. The rounds of one word depend on each other, and those of four words
// don't, so a core can overlap them.
func (k mixKernel) piece(src, dst []byte) {
	for ; len(src) >= 4*wordBytes; src, dst = src[4*wordBytes:], dst[4*wordBytes:] {
		a, b := binary.LittleEndian.Uint32(src), binary.LittleEndian.Uint32(src[4:])
		c, d := binary.LittleEndian.Uint32(src[8:]), binary.LittleEndian.Uint32(src[12:])
		for range k.rounds {
			a, b, c, d = mixOnce(a), mixOnce(b), mixOnce(c), mixOnce(d)
		}
		binary.LittleEndian.PutUint32(dst, a)
		binary.LittleEndian.PutUint32(dst[4:], b)
		binary.LittleEndian.PutUint32(dst[8:], c)
		binary.LittleEndian.PutUint32(dst[12:], d)
	}
	k.AppendReference(dst[:0], src) // the remaining bytes, in place
}
