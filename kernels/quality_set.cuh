// A set of pieces of text, which finds repeated pieces. Among equal pieces, each piece except the first is repeated.
//
// Pieces are equal if their bytes are equal. The hash only determines where an entry is, so a bad hash only costs time. Its coefficients
// are secret and random, so nobody can prepare pieces with equal hashes.
#pragma once

#include "math/murmur3.cuh"
#include "quality_text.cuh"
#include "quality_warp.cuh"

namespace millrace {

// Arithmetic modulo the prime 2^31 - 1. Values are below the prime.
constexpr uint32_t kHashPrime = (1u << 31) - 1;

__device__ inline uint32_t hash_add(uint32_t a, uint32_t b) { return a + b >= kHashPrime ? a + b - kHashPrime : a + b; }

__device__ inline uint32_t hash_multiply(uint32_t a, uint32_t b) {
    uint64_t product = static_cast<uint64_t>(a) * b;
    return hash_add(static_cast<uint32_t>(product) & kHashPrime, static_cast<uint32_t>(product >> 31));
}

// Returns a value from 1 to kHashPrime - 1.
__device__ inline uint32_t hash_coefficient(uint32_t seed, uint32_t number) {
    return murmur3_finish(seed + number * 0x9e3779b9u, 4) % (kHashPrime - 1) + 1;
}

// The hash of a sequence of bytes. Each lane computes a polynomial over every 32nd byte, and the hash is a sum of the
// lanes' values with coefficients. Sequences of equal length collide with a probability of their length / 2^36.
class QualityHash {
public:
    __device__ explicit QualityHash(uint32_t seed)
        : base_(hash_coefficient(seed, 32)), coefficient_(hash_coefficient(seed, lane_id())), sum_(0) {}

    __device__ void add(uint32_t byte) { sum_ = hash_add(hash_multiply(sum_, base_), byte); }

    // Returns the hash of the bytes since the last call.
    __device__ uint32_t finish() {
        uint32_t value = hash_multiply(sum_, coefficient_);
        uint64_t low = reduce_add(value & 0xffff), high = reduce_add(value >> 16);
        sum_ = 0;
        return static_cast<uint32_t>((low + (high << 16)) % kHashPrime);
    }

private:
    const uint32_t base_, coefficient_;
    uint32_t sum_;
};

enum class QualityKind : uint32_t { line = 1, paragraph = 2, gr_paragraph = 3 };

// A piece of a text. Equal pieces have equal hashes.
struct QualityPiece {
    uint32_t from, to;
    uint32_t hash;
};

__device__ inline bool equal_bytes(const uint8_t *batch, uint32_t a, uint32_t b, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 32) {
        uint32_t at = i + lane_id();
        if (ballot(at < bytes && byte_at(batch + a + at) != byte_at(batch + b + at)) != 0) return false;
    }
    return true;
}

// A set of pieces, with linear probing. An entry has its kind, length and start in 2, 31 and 31 bits. Empty entries are 0.
// Several warps may use a set at once. Capacity must be above the number of different pieces.
struct QualitySet {
    unsigned long long *entries;
    uint32_t capacity;

    __device__ void clear() const {
        for (uint32_t i = lane_id(); i < capacity; i += 32) entries[i] = 0;
        __syncwarp();
    }

    // Adds a piece. Returns whether the set already contained an equal piece.
    __device__ bool enter(const uint8_t *batch, QualityKind kind, const QualityPiece &piece) const {
        uint32_t bytes = piece.to - piece.from, mixed = murmur3_finish(piece.hash, bytes ^ static_cast<uint32_t>(kind) << 30);
        uint64_t head = static_cast<uint64_t>(kind) << 31 | bytes, own = head << 31 | piece.from;
        uint32_t i = static_cast<uint32_t>(static_cast<uint64_t>(mixed) * capacity >> 32);
        for (;; i = i + 1 == capacity ? 0 : i + 1) {
            unsigned long long found = 0;
            if (lane_id() == 0) found = atomicCAS(&entries[i], 0ull, static_cast<unsigned long long>(own));
            found = static_cast<uint64_t>(shuffle(static_cast<uint32_t>(found >> 32), 0)) << 32 | shuffle(static_cast<uint32_t>(found), 0);
            if (found == 0) return false;
            if (found >> 31 == head && equal_bytes(batch, piece.from, static_cast<uint32_t>(found) & 0x7fffffff, bytes)) return true;
        }
    }
};

// The number of entries beyond the bytes of a record. A record of n bytes has at most n + 4 pieces.
constexpr uint32_t kSpareEntries = 16;

// Returns the capacity of the set for a record with the given number of bytes and at most `pieces` pieces.
__device__ inline uint32_t set_capacity(uint32_t bytes, uint32_t pieces) {
    return (pieces < bytes / 2 ? 2 * pieces : bytes) + kSpareEntries;
}

} // namespace millrace
