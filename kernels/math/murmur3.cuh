// MurmurHash3_x86_32 with seed 0 (Austin Appleby, public domain).
#pragma once

#include "both.cuh"

namespace millrace {

// bits is 1 to 31. One instruction on the GPU; of shifts alone the compiler would make two products where value is one.
MILLRACE_BOTH uint32_t rotate_left(uint32_t value, int bits) {
#ifdef __CUDA_ARCH__
    return __funnelshift_l(value, value, bits);
#else
    return value << bits | value >> (32 - bits);
#endif
}

// A block of four bytes, scrambled before it is mixed in. The incomplete last block is scrambled alike, with
// zeros for the bytes it lacks.
MILLRACE_BOTH uint32_t murmur3_scramble(uint32_t block) {
    return rotate_left(block * 0xcc9e2d51u, 15) * 0x1b873593u;
}

MILLRACE_BOTH uint32_t murmur3_mix(uint32_t hash, uint32_t block) {
    return rotate_left(hash ^ murmur3_scramble(block), 13) * 5 + 0xe6546b64u;
}

MILLRACE_BOTH uint32_t murmur3_finish(uint32_t hash, uint32_t bytes) {
    hash ^= bytes;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return hash ^ hash >> 16;
}

// The hash of bytes whose blocks block(0), block(1), ... gives, little-endian. Of the last block only the bytes
// that belong to it count; whatever block puts into the others is cut off.
template <class Block>
MILLRACE_BOTH uint32_t murmur3(uint32_t bytes, Block block) {
    uint32_t hash = 0;
    uint32_t blocks = bytes / 4;
    for (uint32_t i = 0; i < blocks; i++) hash = murmur3_mix(hash, block(i));
    uint32_t rest = bytes % 4;
    if (rest != 0) hash ^= murmur3_scramble(block(blocks) & (0xffffffffu >> (32 - 8 * rest)));
    return murmur3_finish(hash, bytes);
}

} // namespace millrace
