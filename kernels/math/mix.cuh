// The arithmetic of mix: what one word of a batch becomes, and the memory that a batch takes.
#pragma once

#include "both.cuh"

namespace millrace {

constexpr uint32_t kMostMixRounds = 65536;
constexpr uint32_t kMostMixScratchFactor = 16;

// One round: a step of a linear congruential generator, and a rotation. Each round needs the one before, so no compiler
// can shorten many of them, and the time of a word is proportional to its rounds.
MILLRACE_BOTH uint32_t mix_round(uint32_t word) {
    word = word * 1664525u + 1013904223u;
    return word << 13 | word >> 19;
}

// Bytes of result for a batch: whole words.
MILLRACE_BOTH uint64_t mix_result_bytes(uint64_t bytes) { return (bytes + 3) / 4 * 4; }

// Bytes of scratch for a batch. With a factor above 0 the result fits in them.
MILLRACE_BOTH uint64_t mix_scratch_bytes(uint64_t bytes, uint32_t factor) { return (bytes * factor + 255) / 256 * 256; }

} // namespace millrace
