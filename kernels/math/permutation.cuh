// The permutations of MinHash: h -> ((a * h + b) mod p) mod 2^32 with p = 2^61 - 1, for 32-bit h.
//
// This is the inner loop of the minhash kernel, which runs once per shingle and permutation, so every instruction
// counts. Let x = a * h + b < 2^93. It is split at bit 61 into x = high * 2^61 + low. Because 2^61 = 1 (mod p), x =
// high + low (mod p), where high < 2^32 and low < 2^61. That sum is below p + 2^32, so the remainder is the sum or
// the sum minus p. Only the low 32 bits of the remainder are needed:
//
//     result = low32(x) + high + carry  (mod 2^32),   carry = 1 if high + low >= p, else 0
//
// because low32(low) = low32(x), and subtracting p adds 1 to the low 32 bits. Three facts make this cheap:
//
//  1. high is found without shifting by using 8x instead of x: bits 64 to 95 of 8x are `high`. With 8a and 8b split
//     into 32-bit words, 8x = (8a)_1 * h * 2^32 + (8a)_0 * h + 8b. This takes two 32 x 32 + 32 -> 64 bit
//     multiply-adds that can't overflow, and one addition of their middle words. Shifting words 1 and 0 right by 3
//     gives low32(x).
//  2. carry is almost always 0. It can be 1 only if low >= p - high >= 2^61 - 2^32, that is, if bits 32 to 60 of
//     low are all ones, which happens once in 2^29. So the loop omits the carry and keeps the maximum of word 1 of 8x
//     (bits 29 to 60 of low). Only if that maximum reaches 0xfffffff8 is the stretch computed again with
//     permute_exact.
//  3. The minimum and the maximum of three values take one instruction each on sm_90.
//
// The multiply-adds occupy one pipe of a multiprocessor. The sums, shifts and minima occupy another. The last sum can
// use either pipe. The compiler adds two numbers with the multipliers' pipe (IMAD.X), and three numbers with the other
// pipe (IADD3.X). So a third number that is always 0, unknown to the compiler, moves the sum. kSumsMoved is the number
// of moved sums.
#pragma once

#include "both.cuh"

namespace millrace {

constexpr uint32_t kMostHashes = 1024; // the maximum number of permutations of an operator

constexpr uint64_t kMersenne61 = (1ull << 61) - 1;

// splitmix64 (Steele, Lea, Flood 2014): returns the next number of the generator in *state.
MILLRACE_BOTH uint64_t splitmix64(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

// A permutation, with a in [1, p - 1] and b in [0, p - 1].
struct Permutation {
    uint64_t a, b;
};

// Returns the next permutation of the generator in *state.
MILLRACE_BOTH Permutation next_permutation(uint64_t *state) {
    Permutation permutation;
    permutation.a = splitmix64(state) % (kMersenne61 - 1) + 1;
    permutation.b = splitmix64(state) % kMersenne61;
    return permutation;
}

// A permutation in the form that the loop needs in registers. The host creates it and the kernel loads it, so the
// compiler doesn't know that the upper halves of the addends are 0. Otherwise it would split the multiply-adds.
struct alignas(8) PermutationWords {
    uint32_t a8_low, a8_high; // the words of 8a
    uint64_t b8_low, b8_high; // the words of 8b, as the 64-bit addends of a multiply-add
};

inline PermutationWords permutation_words(Permutation p) {
    return {static_cast<uint32_t>(p.a << 3), static_cast<uint32_t>(p.a >> 29), static_cast<uint32_t>(p.b << 3), p.b >> 29};
}

// If word 1 is at least this value, the result of permute_fast may be too small by one.
constexpr uint32_t kCarryPossible = 0xfffffff8u;

// The number of moved sums of every four last sums, 0 to 4. With 0, the multipliers' pipe has 10 clocks of work per
// warp and permutation, and the other pipe has 6. With 4, both have 8, but hashing also needs the other pipe.
constexpr int kSumsMoved = 2;

// Returns the permuted h without the carry, and word 1 of 8x. It compiles to two IMAD.WIDE, an IADD3, an SHF, and an
// IMAD.X, or an IADD3.X if move_sum is set.
MILLRACE_BOTH uint32_t permute_fast(const PermutationWords &p, uint32_t h, uint32_t *word1, bool move_sum = false) {
    uint64_t t = static_cast<uint64_t>(p.a8_low) * h + p.b8_low;   // words 0 and 1 of 8x
    uint64_t u = static_cast<uint64_t>(p.a8_high) * h + p.b8_high; // words 1 and 2
    uint32_t result;
#ifdef __CUDA_ARCH__
    asm volatile("" : "+l"(t), "+l"(u)); // computes t and u here; the compiler must not merge later sums into them
    uint32_t t0 = static_cast<uint32_t>(t), t1 = static_cast<uint32_t>(t >> 32);
    uint32_t u0 = static_cast<uint32_t>(u), u1 = static_cast<uint32_t>(u >> 32);
    if (move_sum) {
        uint32_t zero = static_cast<uint32_t>(p.b8_high >> 32);
        asm("{ .reg .u32 low, sum;\n\t"
            "add.cc.u32 %0, %2, %3;\n\t"
            "shf.r.clamp.b32 low, %4, %0, 3;\n\t"
            "addc.u32 sum, %5, low;\n\t"
            "add.u32 %1, sum, %6; }"
            : "=&r"(*word1), "=r"(result)
            : "r"(u0), "r"(t1), "r"(t0), "r"(u1), "r"(zero));
    } else {
        asm("{ .reg .u32 low;\n\t"
            "add.cc.u32 %0, %2, %3;\n\t"
            "shf.r.clamp.b32 low, %4, %0, 3;\n\t"
            "addc.u32 %1, %5, low; }"
            : "=&r"(*word1), "=r"(result)
            : "r"(u0), "r"(t1), "r"(t0), "r"(u1));
    }
#else
    (void)move_sum;
    *word1 = static_cast<uint32_t>(u) + static_cast<uint32_t>(t >> 32);
    uint32_t carried = *word1 < static_cast<uint32_t>(u);
    result = static_cast<uint32_t>(u >> 32) + (*word1 << 29 | static_cast<uint32_t>(t) >> 3) + carried;
#endif
    return result;
}

// Returns the permuted h, including the carry.
MILLRACE_BOTH uint32_t permute_exact(const PermutationWords &p, uint32_t h) {
    uint32_t word1;
    uint32_t fast = permute_fast(p, h, &word1);
    // Reconstructs low and high: words 0 and 1 of 8x without the lowest three bits, which are 0, and word 2.
    uint32_t word0 = static_cast<uint32_t>(static_cast<uint64_t>(p.a8_low) * h + p.b8_low);
    uint64_t low = (static_cast<uint64_t>(word1) << 32 | word0) >> 3;
    uint32_t high = fast - static_cast<uint32_t>(low);
    return fast + (low + high >= kMersenne61);
}

MILLRACE_BOTH uint32_t min2(uint32_t a, uint32_t b) { return a < b ? a : b; }
MILLRACE_BOTH uint32_t max2(uint32_t a, uint32_t b) { return a > b ? a : b; }

MILLRACE_BOTH uint32_t min3(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    return __vimin3_u32(a, b, c);
#else
    return min2(min2(a, b), c);
#endif
}

MILLRACE_BOTH uint32_t max3(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    return __vimax3_u32(a, b, c);
#else
    return max2(max2(a, b), c);
#endif
}

// Processes four hashes: returns the minimum of their permuted values and `least`, and updates the maximum word 1 in
// *worst.
MILLRACE_BOTH uint32_t permute_four(const PermutationWords &p, const uint32_t (&h)[4], uint32_t least,
                                    uint32_t *worst) {
    uint32_t value[4], word1[4];
    for (int i = 0; i < 4; i++) value[i] = permute_fast(p, h[i], &word1[i], i < kSumsMoved);
    *worst = max3(max3(*worst, word1[0], word1[1]), word1[2], word1[3]);
    return min3(min3(least, value[0], value[1]), value[2], value[3]);
}

// Returns the minimum of the permuted hashes[first, limit), or 0xffffffff if the range is empty. hashes must be
// aligned to 16 bytes, because the middle of the range is read 16 bytes at a time.
MILLRACE_BOTH uint32_t permute_least(const PermutationWords &p, const uint32_t *hashes, uint32_t first,
                                     uint32_t limit) {
    uint32_t least = 0xffffffffu, worst = 0, word1;
    uint32_t i = first;
    for (; i < limit && i % 4 != 0; i++) {
        least = min2(least, permute_fast(p, hashes[i], &word1));
        worst = max2(worst, word1);
    }
#ifdef __CUDA_ARCH__
#pragma unroll 2
#endif
    for (; i + 4 <= limit; i += 4) {
#ifdef __CUDA_ARCH__
        uint4 four = *reinterpret_cast<const uint4 *>(hashes + i);
        const uint32_t h[4] = {four.x, four.y, four.z, four.w};
#else
        const uint32_t h[4] = {hashes[i], hashes[i + 1], hashes[i + 2], hashes[i + 3]};
#endif
        least = permute_four(p, h, least, &worst);
    }
    for (; i < limit; i++) {
        least = min2(least, permute_fast(p, hashes[i], &word1));
        worst = max2(worst, word1);
    }
    if (worst < kCarryPossible) return least;
    least = 0xffffffffu;
    for (i = first; i < limit; i++) least = min2(least, permute_exact(p, hashes[i]));
    return least;
}

} // namespace millrace
