package operator

import (
	"encoding/binary"
	"math/bits"
)

// murmur3 is MurmurHash3_x86_32 by Austin Appleby (from the public-domain SMHasher suite). It processes four bytes per
// step, little-endian.
func murmur3(data []byte, seed uint32) uint32 {
	hash := seed
	rest := data
	for len(rest) >= 4 {
		hash ^= murmur3Scramble(binary.LittleEndian.Uint32(rest))
		hash = bits.RotateLeft32(hash, 13)*5 + 0xE6546B64
		rest = rest[4:]
	}
	var tail uint32
	switch len(rest) {
	case 3:
		tail = uint32(rest[2])<<16 | uint32(rest[1])<<8 | uint32(rest[0])
	case 2:
		tail = uint32(rest[1])<<8 | uint32(rest[0])
	case 1:
		tail = uint32(rest[0])
	}
	hash ^= murmur3Scramble(tail) // murmur3Scramble(0) is 0
	hash ^= uint32(len(data))
	hash ^= hash >> 16
	hash *= 0x85EBCA6B
	hash ^= hash >> 13
	hash *= 0xC2B2AE35
	return hash ^ hash>>16
}

func murmur3Scramble(word uint32) uint32 {
	return bits.RotateLeft32(word*0xCC9E2D51, 15) * 0x1B873593
}
