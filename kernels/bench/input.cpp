// Batches of random words, and the check of their results.
#include "input.hpp"

#include <stdio.h>
#include <string.h>

#include "../math/mix.cuh"
#include "failure.hpp"

namespace yardstick {

namespace {

constexpr uint32_t kTableWords = 4096;

// The indexes of the table's words that form a slot's batch.
class Places {
public:
    Places(uint64_t seed, uint64_t slot) : state_(seed + (slot + 1) * 0x100000001b3ull) {}
    uint32_t next() { return static_cast<uint32_t>(next_random(&state_) % kTableWords); }

private:
    uint64_t state_;
};

} // namespace

uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

Input::Input(uint64_t seed, uint32_t rounds) : seed_(seed), words_(kTableWords) {
    for (uint32_t &word : words_) word = static_cast<uint32_t>(next_random(&seed));
    mixed_ = words_;
    for (uint32_t &word : mixed_) {
        for (uint32_t r = 0; r < rounds; r++) word = millrace::mix_round(word);
    }
}

void Input::fill(uint8_t *memory, uint64_t bytes, uint64_t slot) const {
    Places places(seed_, slot);
    for (uint64_t at = 0; at < bytes; at += 4) memcpy(memory + at, &words_[places.next()], 4);
}

void Input::check(const uint8_t *output, uint64_t bytes, uint64_t slot, const char *what) const {
    Places places(seed_, slot);
    for (uint64_t at = 0; at < bytes; at += 4) {
        uint32_t got, want = mixed_[places.next()];
        memcpy(&got, output + at, 4);
        if (got == want) continue;
        char text[160];
        snprintf(text, sizeof text, "%s is wrong: word %llu of %llu is %08x and not %08x (seed %llu, slot %llu)", what,
                 static_cast<unsigned long long>(at / 4), static_cast<unsigned long long>(bytes / 4), got, want,
                 static_cast<unsigned long long>(seed_), static_cast<unsigned long long>(slot));
        throw Failure(text);
    }
}

} // namespace yardstick
