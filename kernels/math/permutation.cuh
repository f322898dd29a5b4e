// The permutations of MinHash: h -> (a * h + b) mod 2^32, as NeMo Curator defines them.
//
// numpy's RandomState(seed) gives a and b alternately: randint(1, 2^31 - 1) and randint(0, 2^31 - 1), each without its upper
// bound. The generator is MT19937 with the seeding of its authors, which is std::mt19937. randint draws numbers of 31 bits until
// one is in the range.
#pragma once

#include <random>

#include "both.cuh"

namespace millrace {

constexpr uint32_t kMostHashes = 1024; // the maximum number of permutations of an operator

// The kernels' threads load a permutation with one instruction.
struct alignas(8) Permutation {
    uint32_t a, b;
};

// Generates the permutations of a seed.
class Permutations {
public:
    explicit Permutations(uint32_t seed) : random_(seed) {}

    Permutation next() {
        uint32_t a = 1 + below(kEnd - 1);
        return {a, below(kEnd)};
    }

private:
    static constexpr uint32_t kEnd = (1u << 31) - 1;

    // Returns a number below `bound`. `bound` must be above 2^30, so that the range needs 31 bits.
    uint32_t below(uint32_t bound) {
        uint32_t value;
        do value = static_cast<uint32_t>(random_()) & 0x7fffffffu;
        while (value >= bound);
        return value;
    }

    std::mt19937 random_;
};

MILLRACE_BOTH uint32_t permute(Permutation p, uint32_t h) { return p.a * h + p.b; }

MILLRACE_BOTH uint32_t min2(uint32_t a, uint32_t b) { return a < b ? a : b; }

// Returns the minimum. On sm_90, it is one instruction.
MILLRACE_BOTH uint32_t min3(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    return __vimin3_u32(a, b, c);
#else
    return min2(min2(a, b), c);
#endif
}

} // namespace millrace
