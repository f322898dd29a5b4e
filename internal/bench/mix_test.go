package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"millrace/internal/device"
)

// serially is a device.Parallel that makes the calls one after the other.
func serially(n int, fn func(int)) {
	for i := range n {
		fn(i)
	}
}

func TestMixByHand(t *testing.T) {
	// One round of 1: 1664525 + 1013904223 = 1015568748 = 0x3C88596C, rotated left by 13: 0x0B2D8791.
	got := mix{rounds: 1}.AppendReference(nil, []byte{1, 0, 0, 0})
	if want := binary.LittleEndian.AppendUint32(nil, 0x0B2D8791); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if got := (mix{}).AppendReference(nil, []byte{1, 2, 3, 4, 5}); !bytes.Equal(got, []byte{1, 2, 3, 4, 5, 0, 0, 0}) {
		t.Errorf("no rounds over 5 bytes give %x, want zero padding", got)
	}
}

func TestMixKernelGivesTheReference(t *testing.T) {
	for _, bytesOf := range []int{0, 1, 3, 4, 15, 16, 17, 256, 1000, mixPieceBytes, mixPieceBytes + 5, 3 * mixPieceBytes} {
		for _, m := range []mix{{}, {rounds: 1}, {rounds: 7, scratchFactor: 1}, {rounds: 2, scratchFactor: maxScratchFactor}} {
			rows := make([]byte, bytesOf)
			random(rows, 7, ^uint64(0))
			k, err := mixHost{}.Bind(m.Params())
			if err != nil {
				t.Fatal(err)
			}
			needs := k.Needs(device.Shape{Rows: 1, Bytes: bytesOf, Longest: bytesOf})
			result := make([]byte, needs.Result)
			if err := k.Run(rows, []uint32{0, uint32(bytesOf)}, make([]byte, needs.Scratch), result, serially); err != nil {
				t.Fatal(err)
			}
			if want := m.AppendReference(nil, rows); !bytes.Equal(result, want) {
				t.Errorf("%v over %d bytes differs from the reference", m, bytesOf)
			}
			if want := (m.scratchFactor*bytesOf + 255) / 256 * 256; needs.Scratch != want {
				t.Errorf("%v over %d bytes asks for %d bytes of scratch, want %d", m, bytesOf, needs.Scratch, want)
			}
		}
	}
}

func TestMixRefusesBadBlocksAndTooLittleMemory(t *testing.T) {
	for _, block := range [][]byte{nil, make([]byte, 7), make([]byte, 9), mix{rounds: maxMixRounds + 1}.Params(), mix{scratchFactor: maxScratchFactor + 1}.Params()} {
		if _, err := (mixHost{}).Bind(block); !errors.Is(err, device.ErrInvalid) {
			t.Errorf("block %x gives %v, want ErrInvalid", block, err)
		}
	}
	k := mixKernel{mix{rounds: 1, scratchFactor: 1}}
	if err := k.Run(make([]byte, 8), []uint32{0, 8}, make([]byte, 256), make([]byte, 4), serially); err == nil {
		t.Error("Run accepts a result of 4 bytes for 8 bytes of rows")
	}
	if err := k.Run(make([]byte, 8), []uint32{0, 8}, nil, make([]byte, 8), serially); err == nil {
		t.Error("Run accepts missing scratch")
	}
}
