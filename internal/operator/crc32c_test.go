package operator

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"millrace/internal/corpus"
)

// TestCRC32CVectors: the first two vectors are from the specification, and all others are from RFC 3720, appendix B.4.
func TestCRC32CVectors(t *testing.T) {
	op := parse(t, "crc32c")
	ascending, descending := make([]byte, 32), make([]byte, 32)
	for i := range ascending {
		ascending[i], descending[i] = byte(i), byte(31-i)
	}
	for _, v := range []struct {
		payload []byte
		want    string
	}{
		{nil, `"00000000"`},
		{[]byte("123456789"), `"e3069283"`},
		{make([]byte, 32), `"8a9136aa"`},
		{bytes.Repeat([]byte{0xFF}, 32), `"62a8ab43"`},
		{ascending, `"46dd794e"`},
		{descending, `"113fdb5c"`},
	} {
		record := op.AppendReference(nil, v.payload)
		if got := string(op.AppendJSON(nil, record)); got != v.want {
			t.Errorf("crc32c of %x is %s, want %s", v.payload, got, v.want)
		}
	}
}

func TestCRC32CReferenceAgainstStandardLibrary(t *testing.T) {
	for i, payload := range corpus.Adversarial(3) {
		want := crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli))
		if got := binary.LittleEndian.Uint32(crc32cReference(nil, payload)); got != want {
			t.Fatalf("payload %d of %d bytes: %#08x, want %#08x", i, len(payload), got, want)
		}
	}
}

func TestCRC32CConcat(t *testing.T) {
	data := corpus.Bytes(9, 70000)
	for _, n := range []int{0, 1, 2, 7, 8, 9, 255, 256, 4096, 65535, 65536, 69999, 70000} {
		at := len(data) - n
		first, second := crc32.Checksum(data[:at], castagnoliTable), crc32.Checksum(data[at:], castagnoliTable)
		if got, want := crc32cConcat(first, second, n), crc32.Checksum(data, castagnoliTable); got != want {
			t.Errorf("cut %d bytes before the end: %#08x, want %#08x", n, got, want)
		}
	}
}

// TestCRC32CConcatBeyondMemory checks long strings of zeros without creating them. Appending n zeros in one step or in
// two must return the same checksum.
func TestCRC32CConcatBeyondMemory(t *testing.T) {
	zeros := func(n int) uint32 { // checksum of n zeros, where n is a multiple of 1024
		checksum, power := crc32.Checksum(nil, castagnoliTable), crc32.Checksum(make([]byte, 1024), castagnoliTable)
		for length := 1024; n >= 1024; length *= 2 {
			if n&length != 0 {
				checksum = crc32cConcat(checksum, power, length)
				n -= length
			}
			power = crc32cConcat(power, power, length)
		}
		return checksum
	}
	if got, want := zeros(1<<20), crc32.Checksum(make([]byte, 1<<20), castagnoliTable); got != want {
		t.Errorf("a MiB of zeros: %#08x, want %#08x", got, want)
	}
	whole, half := zeros(3<<29), zeros(3<<28)
	if got := crc32cConcat(half, half, 3<<28); got != whole {
		t.Errorf("1.5 GiB of zeros in two halves: %#08x, in other steps %#08x", got, whole)
	}
}
