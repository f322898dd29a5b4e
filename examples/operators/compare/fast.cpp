// Implementations in C++ that use a CPU better than an operator's code can.
#include <string.h>

#include <algorithm>

#include "library.h"

namespace {

// Runs a function for each record: out[i] = one(record, size).
template <class One>
void each(const uint8_t *data, const uint32_t *offsets, uint64_t *out, uint32_t first, uint32_t end, One one) {
    for (uint32_t i = first; i < end; i++) out[i] = one(data + offsets[i], offsets[i + 1] - offsets[i]);
}

// ---- entropy with 4 bits ----

typedef uint8_t Bytes __attribute__((vector_size(64)));

// Compares 64 bytes at a time with each bin. It counts in bytes, and no count exceeds 255.
uint64_t peak(const uint8_t *record, uint32_t size) {
    uint32_t bins[16] = {}, i = 0;
    while (size - i >= 64) {
        Bytes count[16] = {};
        for (uint32_t n = 0; n < 255 && size - i >= 64; n++, i += 64) {
            Bytes bytes;
            memcpy(&bytes, record + i, 64);
            bytes >>= 4;
            for (uint32_t b = 0; b < 16; b++) count[b] -= reinterpret_cast<Bytes>(bytes == static_cast<uint8_t>(b));
        }
        for (uint32_t b = 0; b < 16; b++) {
            for (uint32_t k = 0; k < 64; k++) bins[b] += count[b][k];
        }
    }
    for (; i < size; i++) bins[record[i] >> 4]++;
    return *std::max_element(bins, bins + 16);
}

// ---- simhash with shingles of 8 bytes ----

typedef uint64_t Words __attribute__((vector_size(64)));

// Hashes eight shingles at a time, and counts each of the 64 bits in bit slices. Full adders add two numbers at a time.
uint64_t similar(const uint8_t *record, uint32_t size) {
    if (size < 8) return 0; // the corpus has no such record
    uint32_t shingles = size - 7, total[64] = {};
    constexpr uint32_t kPlanes = 5;
    for (uint32_t from = 0; from < shingles;) {
        Words planes[kPlanes] = {};
        for (uint32_t n = 0; n < (1u << kPlanes) - 1 && from < shingles; n++, from += 8) {
            Words bits;
            if (shingles - from >= 8) {
                uint64_t low, high;
                memcpy(&low, record + from, 8);
                memcpy(&high, record + from + 7, 8);
                high >>= 8; // the bytes from + 8 to from + 14
                const Words shifts = {0, 8, 16, 24, 32, 40, 48, 56};
                bits = (low >> shifts) | (high << 1 << (63 - shifts));
            } else {
                bits = Words{};
                for (uint32_t s = 0; s < shingles - from; s++) {
                    uint64_t shingle;
                    memcpy(&shingle, record + from + s, 8);
                    bits[s] = shingle;
                }
            }
            bits += 8 * 0x9e3779b97f4a7c15;
            bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
            bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
            bits ^= bits >> 31;
            for (uint32_t s = shingles - from; s < 8; s++) bits[s] = 0;
            for (uint32_t p = 0; p < kPlanes; p++) {
                Words carry = planes[p] & bits;
                planes[p] ^= bits, bits = carry;
            }
        }
        uint64_t sum[kPlanes + 3] = {}; // sum of the eight shingles' counters
        for (uint32_t s = 0; s < 8; s++) {
            uint64_t carry = 0;
            for (uint32_t p = 0; p < kPlanes + 3; p++) {
                uint64_t x = sum[p], y = p < kPlanes ? planes[p][s] : 0;
                sum[p] = x ^ y ^ carry, carry = (x & y) | (carry & (x ^ y));
            }
        }
        for (uint32_t p = 0; p < kPlanes + 3; p++) {
            for (uint32_t b = 0; b < 64; b++) total[b] += static_cast<uint32_t>(sum[p] >> b & 1) << p;
        }
    }
    uint64_t hash = 0;
    for (uint32_t b = 0; b < 64; b++) hash |= static_cast<uint64_t>(total[b] > shingles / 2) << b;
    return hash;
}

} // namespace

void fast_entropy(const uint8_t *data, const uint32_t *offsets, uint64_t *out, uint32_t first, uint32_t end) {
    each(data, offsets, out, first, end, peak);
}

void fast_simhash(const uint8_t *data, const uint32_t *offsets, uint64_t *out, uint32_t first, uint32_t end) {
    each(data, offsets, out, first, end, similar);
}
