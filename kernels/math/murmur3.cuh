// MurmurHash3_x86_32 (Austin Appleby, public domain).
#pragma once

#include "both.cuh"

namespace millrace {

// Rotates by 1 to 31 bits. On the GPU, the intrinsic is one instruction. For two shifts, the compiler would generate two
// multiplications.
MILLRACE_BOTH uint32_t rotate_left(uint32_t value, int bits) {
#ifdef __CUDA_ARCH__
    return __funnelshift_l(value, value, bits);
#else
    return value << bits | value >> (32 - bits);
#endif
}

// Scrambles a block of four bytes before it is mixed in. An incomplete last block is padded with zeros.
MILLRACE_BOTH uint32_t murmur3_scramble(uint32_t block) {
    return rotate_left(block * 0xcc9e2d51u, 15) * 0x1b873593u;
}

// Mixes in a block that has been scrambled.
MILLRACE_BOTH uint32_t murmur3_mix(uint32_t hash, uint32_t scrambled) {
    return rotate_left(hash ^ scrambled, 13) * 5 + 0xe6546b64u;
}

// Mixes in the last `count` bytes of the input, 1 to 3, which are the low bytes of `block`.
MILLRACE_BOTH uint32_t murmur3_rest(uint32_t hash, uint32_t block, uint32_t count) {
    return hash ^ murmur3_scramble(block & (0xffffffffu >> (32 - 8 * count)));
}

MILLRACE_BOTH uint32_t murmur3_finish(uint32_t hash, uint32_t bytes) {
    hash ^= bytes;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return hash ^ hash >> 16;
}

// Returns the hash of the bytes that block(0), block(1), ... return as little-endian blocks. In the last block, bytes
// beyond the end are ignored.
template <class Block>
MILLRACE_BOTH uint32_t murmur3(uint32_t seed, uint32_t bytes, Block block) {
    uint32_t hash = seed;
    uint32_t blocks = bytes / 4;
    for (uint32_t i = 0; i < blocks; i++) hash = murmur3_mix(hash, murmur3_scramble(block(i)));
    if (bytes % 4 != 0) hash = murmur3_rest(hash, block(blocks), bytes % 4);
    return murmur3_finish(hash, bytes);
}

} // namespace millrace
