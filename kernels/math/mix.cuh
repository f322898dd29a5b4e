// The arithmetic of mix: the result for one word, and the memory for a batch.
#pragma once

#include "both.cuh"

namespace millrace {

constexpr uint32_t kMostMixRounds = 65536;
constexpr uint32_t kMostMixScratchFactor = 16;

// One round: a step of a linear congruential generator, and a rotation. Each round depends on the previous one, so no
// compiler can combine them, and the time per word is proportional to the number of rounds.
MILLRACE_BOTH uint32_t mix_round(uint32_t word) {
    word = word * 1664525u + 1013904223u;
    return word << 13 | word >> 19;
}

// Returns the size of the result for a batch, in bytes, rounded up to whole words.
MILLRACE_BOTH uint64_t mix_result_bytes(uint64_t bytes) { return (bytes + 3) / 4 * 4; }

// Returns the size of the scratch for a batch, in bytes. If the factor is above 0, the result fits in it.
MILLRACE_BOTH uint64_t mix_scratch_bytes(uint64_t bytes, uint32_t factor) { return (bytes * factor + 255) / 256 * 256; }

} // namespace millrace
