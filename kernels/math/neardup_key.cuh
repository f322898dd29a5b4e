// The key of a band of a signature, as internal/operator/neardup defines it. The lowest bits of a key contain the band.
#pragma once

#include "both.cuh"

namespace millrace {

constexpr uint32_t kMostBands = 64;

// The number of bits of a key that contain the band.
MILLRACE_BOTH uint32_t neardup_band_bits(uint32_t bands) {
    uint32_t bits = 0;
    for (; bands != 0; bands >>= 1) bits++;
    return bits;
}

// Returns the key of band number `band`, whose part of the signature has `rows` values. The mixing function is the one of
// SplitMix64.
MILLRACE_BOTH uint64_t neardup_key(uint32_t band, uint32_t band_bits, const uint32_t *values, uint32_t rows) {
    uint64_t h = band + 1;
    for (uint32_t i = 0; i < rows; i += 2) {
        uint64_t high = i + 1 < rows ? values[i + 1] : 0;
        h ^= values[i] | high << 32;
        h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
        h = (h ^ h >> 27) * 0x94d049bb133111eb;
        h ^= h >> 31;
    }
    return h >> band_bits << band_bits | (band + 1);
}

} // namespace millrace
