// The kernel of mix, and its number of blocks.
//
// A thread processes 16 bytes at a time: four words with independent rounds, so that their multiplications overlap.
// The grid fills every multiprocessor, and the blocks stride over the remaining bytes.
#pragma once

#include "load.cuh"
#include "math/mix.cuh"

namespace millrace {

constexpr uint32_t kMixThreads = 256;
constexpr uint32_t kMixBlocksPerMultiprocessor = 8; // 2048 threads: the maximum

// Returns the number of blocks for a batch: 16 bytes per thread, but at most the number of blocks that can run at once. It
// returns 0 for an empty batch.
inline uint32_t mix_blocks(uint64_t bytes, uint32_t multiprocessors) {
    uint64_t blocks = (bytes + kMixThreads * 16 - 1) / (kMixThreads * 16);
    uint64_t most = static_cast<uint64_t>(multiprocessors) * kMixBlocksPerMultiprocessor;
    return static_cast<uint32_t>(blocks < most ? blocks : most);
}

// Passes four words through their rounds, in step.
__device__ inline void mix_words(uint32_t (&words)[4], uint32_t rounds) {
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t w = 0; w < 4; w++) words[w] = mix_round(words[w]);
    }
}

// Stores the words that are within `left` bytes, a multiple of 4 above 0. `to` must be aligned to 16.
__device__ inline void store_words(const uint32_t (&words)[4], uint8_t *to, uint32_t left) {
    if (left >= 16) {
        *reinterpret_cast<uint4 *>(to) = make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
    for (uint32_t w = 0; w < 3; w++) {
        if (w * 4 < left) reinterpret_cast<uint32_t *>(to)[w] = words[w];
    }
}

// Mixes `bytes` bytes from any address (at most kMostInBatch) into whole words at `to`, which must be aligned to 16. If
// `last` is not NULL, it is the address of an additional byte to write. This is the last byte of the scratch, so that
// all scratch is used.
static __global__ void __launch_bounds__(kMixThreads)
    mix_bytes(const uint8_t *from, uint32_t bytes, uint32_t rounds, uint8_t *to, uint8_t *last) {
    uint32_t limit = static_cast<uint32_t>(mix_result_bytes(bytes));
    uint32_t stride = gridDim.x * kMixThreads * 16;
    for (uint32_t position = (blockIdx.x * kMixThreads + threadIdx.x) * 16; position < limit; position += stride) {
        uint32_t words[4];
        load_16(from, position, bytes, words);
        mix_words(words, rounds);
        store_words(words, to + position, limit - position);
    }
    if (last != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *last = 1;
}

} // namespace millrace
