// The kernel that computes the keys of near-duplicates from the signatures of minhash.
#pragma once

#include "math/neardup_key.cuh"

namespace millrace {

constexpr uint32_t kNeardupKeyThreads = 128;

// Writes one key per thread. `keys` is the number of all keys: records times bands.
static __global__ void __launch_bounds__(kNeardupKeyThreads)
    neardup_write_keys(const uint32_t *signatures, uint32_t bands, uint32_t rows, uint64_t keys, uint64_t *result) {
    uint64_t i = static_cast<uint64_t>(blockIdx.x) * kNeardupKeyThreads + threadIdx.x;
    if (i >= keys) return;
    uint32_t band = static_cast<uint32_t>(i % bands);
    result[i] = neardup_key(band, neardup_band_bits(bands), signatures + i * rows, rows); // the values of the bands are back to back
}

} // namespace millrace
