package operator

import (
	"fmt"
	"testing"

	"millrace/internal/corpus"
)

// TestMurmur3Vectors uses well-known vectors for MurmurHash3_x86_32. Implementations in other languages use them, too.
func TestMurmur3Vectors(t *testing.T) {
	for _, v := range []struct {
		data string
		seed uint32
		want uint32
	}{
		{"", 0, 0},
		{"", 1, 0x514E28B7},
		{"", 0xFFFFFFFF, 0x81F16F39},
		{"\xFF\xFF\xFF\xFF", 0, 0x76293B50},
		{"\x21\x43\x65\x87", 0, 0xF55B516B},
		{"\x21\x43\x65\x87", 0x5082EDEE, 0x2362F9DE},
		{"\x21\x43\x65", 0, 0x7E4A8634},
		{"\x21\x43", 0, 0xA0F7B07A},
		{"\x21", 0, 0x72661CF4},
		{"\x00\x00\x00\x00", 0, 0x2362F9DE},
		{"test", 0, 0xBA6BD213},
		{"test", 0x9747B28C, 0x704B81DC},
		{"Hello, world!", 0, 0xC0363E43},
		{"Hello, world!", 0x9747B28C, 0x24884CBA},
		{"The quick brown fox jumps over the lazy dog", 0, 0x2E4FF723},
	} {
		if got := murmur3([]byte(v.data), v.seed); got != v.want {
			t.Errorf("murmur3(%q, %#x) = %#08x, want %#08x", v.data, v.seed, got, v.want)
		}
	}
}

func TestMurmur3AgainstSlow(t *testing.T) {
	for n := range 301 {
		data := corpus.Bytes(uint64(n), n)
		for _, seed := range []uint32{0, 1, 0xDEADBEEF} {
			if got, want := murmur3(data, seed), slowMurmur3(data, seed); got != want {
				t.Fatalf("murmur3 of %d bytes, seed %#x: %#08x, want %#08x", n, seed, got, want)
			}
		}
	}
}

// slowMurmur3 processes one byte at a time in 64-bit numbers, reduces after each step, and rotates by multiplication.
func slowMurmur3(data []byte, seed uint32) uint32 {
	const modulus = 1 << 32
	rotate := func(x uint64, by int) uint64 {
		x <<= by
		return x%modulus + x/modulus
	}
	scramble := func(x uint64) uint64 {
		return rotate(x*0xCC9E2D51%modulus, 15) * 0x1B873593 % modulus
	}
	hash, word := uint64(seed), uint64(0)
	for i, b := range data {
		word += uint64(b) << (8 * (i % 4))
		if i%4 == 3 {
			hash = (rotate(hash^scramble(word), 13)*5 + 0xE6546B64) % modulus
			word = 0
		}
	}
	hash ^= scramble(word) ^ uint64(len(data))
	hash = (hash ^ hash/(1<<16)) * 0x85EBCA6B % modulus
	hash = (hash ^ hash/(1<<13)) * 0xC2B2AE35 % modulus
	return uint32(hash ^ hash/(1<<16))
}

func BenchmarkMurmur3(b *testing.B) {
	for _, n := range []int{24, 72} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			data := corpus.Text(1, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				murmur3(data, 0)
			}
		})
	}
}
