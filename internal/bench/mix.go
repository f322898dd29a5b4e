package bench

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// These are the bounds of the operator mix. libmillrace has the same bounds.
const (
	maxMixRounds     = 65536
	maxScratchFactor = 16
)

const (
	mixName       = "mix"
	mixBlockBytes = 8
	scratchAlign  = 256
	wordBytes     = 4
)

// mix is the balanced operator. Its result has as many bytes as the batch. Its amount of arithmetic is adjustable, so
// its kernel can take as long as a copy. Only measurements use it: MILLRACE_OPERATORS can't name it. libmillrace has a
// kernel with the same name and parameter block.
//
// mix reads the batch as little-endian uint32 words and pads the last word with zeros. It replaces each word w by
// rotl32(w*1664525 + 1013904223, 13), and repeats this rounds times. If scratchFactor is not 0, the words are first
// copied to scratch memory.
type mix struct {
	rounds        int // 0 to maxMixRounds
	scratchFactor int // bytes of scratch for each byte of the batch, 0 to maxScratchFactor
}

var _ operator.Operator = mix{}

// Name implements operator.Operator.
func (mix) Name() string { return mixName }

// String implements operator.Operator. Package operator can't parse it.
func (m mix) String() string {
	return fmt.Sprintf("%s?rounds=%d&scratch=%d", mixName, m.rounds, m.scratchFactor)
}

// Params implements operator.Operator. The block holds uint32 rounds and uint32 scratch factor.
func (m mix) Params() []byte {
	block := binary.LittleEndian.AppendUint32(make([]byte, 0, mixBlockBytes), uint32(m.rounds))
	return binary.LittleEndian.AppendUint32(block, uint32(m.scratchFactor))
}

// Stride implements operator.Operator. The result has one record per word of the batch, not per payload.
func (mix) Stride() int { return wordBytes }

// Needs implements device.BoundHostKernel.
func (m mix) Needs(s device.Shape) device.Needs {
	return device.Needs{
		Scratch: roundUp(m.scratchFactor*s.Bytes, scratchAlign),
		Result:  roundUp(s.Bytes, wordBytes),
	}
}

// AppendJSON implements operator.Operator. It appends the word as a number.
func (mix) AppendJSON(dst, record []byte) []byte {
	return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(record)), 10)
}

// MaxJSON implements operator.Operator.
func (mix) MaxJSON() int { return len("4294967295") }

// AppendReference implements operator.Operator. payload must be a part of a batch that starts at a multiple of 4 bytes.
// AppendReference appends the same part of the batch's result.
func (m mix) AppendReference(dst, payload []byte) []byte {
	for ; len(payload) >= wordBytes; payload = payload[wordBytes:] {
		dst = binary.LittleEndian.AppendUint32(dst, m.word(binary.LittleEndian.Uint32(payload)))
	}
	if len(payload) > 0 {
		var last [wordBytes]byte
		copy(last[:], payload)
		dst = binary.LittleEndian.AppendUint32(dst, m.word(binary.LittleEndian.Uint32(last[:])))
	}
	return dst
}

func (m mix) word(w uint32) uint32 {
	for range m.rounds {
		w = mixOnce(w)
	}
	return w
}

func mixOnce(w uint32) uint32 { return bits.RotateLeft32(w*1664525+1013904223, 13) }

// mixPieceBytes is the number of bytes of a batch that one core processes at a time. It is a multiple of 16.
const mixPieceBytes = 64 << 10

// mixHost is the kernel of mix for devices that use the host's memory.
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
func (m mixKernel) Run(rows []byte, _ []uint32, scratch, result []byte, parallel device.Parallel) error {
	needs := m.Needs(device.Shape{Bytes: len(rows)})
	if len(scratch) < needs.Scratch || len(result) < needs.Result {
		return fmt.Errorf("mix over %d bytes got %d bytes of scratch and %d of result: it needs %d and %d",
			len(rows), len(scratch), len(result), needs.Scratch, needs.Result)
	}
	if len(rows) == 0 {
		return nil
	}
	source := rows
	if needs.Scratch > 0 {
		scratch[needs.Scratch-1] = 0 // lets a test detect memory that is too short
		source = scratch[:len(rows)]
		copy(source, rows)
	}
	pieces := (len(rows) + mixPieceBytes - 1) / mixPieceBytes
	parallel(pieces, func(i int) {
		low, high := i*mixPieceBytes, min((i+1)*mixPieceBytes, len(rows))
		m.piece(source[low:high], result[low:roundUp(high, wordBytes)])
	})
	return nil
}

// piece mixes src into dst, four words at a time. The rounds of one word depend on each other, but a core can overlap
// the rounds of several words.
func (m mixKernel) piece(src, dst []byte) {
	for ; len(src) >= 4*wordBytes; src, dst = src[4*wordBytes:], dst[4*wordBytes:] {
		a, b := binary.LittleEndian.Uint32(src), binary.LittleEndian.Uint32(src[4:])
		c, d := binary.LittleEndian.Uint32(src[8:]), binary.LittleEndian.Uint32(src[12:])
		for range m.rounds {
			a, b, c, d = mixOnce(a), mixOnce(b), mixOnce(c), mixOnce(d)
		}
		binary.LittleEndian.PutUint32(dst, a)
		binary.LittleEndian.PutUint32(dst[4:], b)
		binary.LittleEndian.PutUint32(dst[8:], c)
		binary.LittleEndian.PutUint32(dst[12:], d)
	}
	m.AppendReference(dst[:0], src) // the remaining bytes, in place
}

// roundUp returns the smallest multiple of to that is at least n.
func roundUp(n, to int) int { return (n + to - 1) / to * to }
