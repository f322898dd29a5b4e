// Batches of random words, and whether what came of them is right.
#pragma once

#include <stdint.h>

#include <vector>

namespace yardstick {

// splitmix64 (Steele, Lea, Flood 2014): the next value of a generator.
uint64_t next_random(uint64_t *state);

// Random words drawn from a table of 4096 random ones: so the CPU has to mix the table alone to know what every word
// of every batch must become, and can check all of a batch of any size.
class Input {
public:
    // Every seed gives other batches. `rounds` are those that mix will be given.
    Input(uint64_t seed, uint32_t rounds);

    // Fills a slot's batch. bytes is a multiple of 4; memory is aligned to 4.
    void fill(uint8_t *memory, uint64_t bytes, uint64_t slot) const;

    // Compares a slot's output with the CPU's mix. Throws Failure, which names the first wrong word and calls the
    // batch `what`.
    void check(const uint8_t *output, uint64_t bytes, uint64_t slot, const char *what) const;

private:
    uint64_t seed_;
    std::vector<uint32_t> words_, mixed_;
};

} // namespace yardstick
