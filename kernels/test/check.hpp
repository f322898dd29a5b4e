// Shared by the host tests: checks that end the program on a failure, and random numbers that are the same in every
// run.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <map>
#include <string>
#include <vector>

#define CHECK_EQUAL(got, want, ...)                                                          \
    do {                                                                                     \
        unsigned long long got_ = (got), want_ = (want);                                     \
        if (got_ != want_) {                                                                 \
            fprintf(stderr, "%s:%d: %s is %llx, want %llx: ", __FILE__, __LINE__, #got, got_, want_); \
            fprintf(stderr, __VA_ARGS__);                                                    \
            fprintf(stderr, "\n");                                                           \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

// xorshift64* (Marsaglia, Vigna).
struct Random {
    uint64_t state;
    explicit Random(uint64_t seed) : state(seed * 2654435769u + 1) {}
    uint64_t next() {
        state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
        return state * 0x2545f4914f6cdd1dull;
    }
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }
};

using Rows = std::vector<std::string>;

// A batch as kernels see it. Its bytes start `lead` bytes after an aligned address. They are at the end of a
// separate allocation, so that the sanitizer detects a read past them.
struct Batch {
    std::vector<uint32_t> offsets;
    std::vector<uint8_t> memory;
    const uint8_t *bytes;
    uint32_t length, rows;
    Batch(const Rows &all, uint32_t lead);
};

void check_arithmetic();
void check_kernels();
void check_mix();
void check_neardup();
void check_neardup_keys();
void check_persistent();
void check_quality();
void check_yardstick();

// Slow and simple references. For text that isn't UTF-8, slow_quality returns false and no counters.
bool slow_quality(const std::string &row, std::map<std::string, uint32_t> *counters);
uint32_t slow_crc32c(const std::string &row);
uint32_t slow_murmur3(uint32_t seed, const std::string &bytes);
std::vector<uint32_t> slow_minhash(const std::string &row, uint32_t k, uint32_t hashes, uint32_t seed);
