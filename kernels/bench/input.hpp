// Batches of random words, and the check of their results.
#pragma once

#include <stdint.h>

#include <vector>

namespace yardstick {

// splitmix64 (Steele, Lea, Flood 2014): returns the next value of a generator.
uint64_t next_random(uint64_t *state);

// Random words drawn from a table of 4096 random words. The CPU mixes only the table, whose results contain the result for every
// word of every batch. Batches of any size can therefore be checked completely.
class Input {
public:
    // Different seeds give different batches. `rounds` must be the number of rounds that mix runs.
    Input(uint64_t seed, uint32_t rounds);

    // Fills a slot's batch. `bytes` must be a multiple of 4, and `memory` must be aligned to 4.
    void fill(uint8_t *memory, uint64_t bytes, uint64_t slot) const;

    // Compares a slot's output with the CPU's result. If the output differs, check throws Failure. The message contains `what`
    // and the first wrong word.
    void check(const uint8_t *output, uint64_t bytes, uint64_t slot, const char *what) const;

private:
    uint64_t seed_;
    std::vector<uint32_t> words_, mixed_;
};

} // namespace yardstick
