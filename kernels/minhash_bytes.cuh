// Hashes the shingles of a tile in which every byte starts a character, as in ASCII.
//
// The hash function processes the bytes of a shingle in blocks of four. Each block is scrambled, which needs most of the hash's
// multiplications, and then mixed in. Shingles that start 4, 8, ... bytes apart have blocks in common. Every block is therefore
// scrambled once and kept in shared memory.
#pragma once

#include "minhash_tile.cuh"

namespace millrace {

// Scrambles the block at each position of the tile's shingles, and sets multibyte if one of these bytes doesn't start a
// character.
template <class Team>
__device__ inline void scramble_blocks(const TileInput &in, TileBytes *tile, TileState *state) {
    uint32_t bytes = min(in.staged, in.length + in.k), continued = 0;
    for (uint32_t w = Team::rank(); w * 4 < bytes; w += Team::kThreads) {
        uint32_t word = tile->words[w], next = tile->words[w + 1], left = bytes - w * 4;
        uint32_t continuations = ~character_starts(word) & 0x80808080u;
        continued |= left >= 4 ? continuations : continuations & ((1u << 8 * left) - 1);
        uint32_t second = __funnelshift_r(word, next, 8), third = __funnelshift_r(word, next, 16);
        reinterpret_cast<uint4 *>(tile->scrambled)[w] =
            make_uint4(murmur3_scramble(word), murmur3_scramble(second), murmur3_scramble(third),
                       murmur3_scramble(__funnelshift_r(word, next, 24)));
    }
    if (continued != 0) atomicOr(&state->multibyte, 1u);
}

// Returns the hash of the shingle with the given number of bytes at a position.
__device__ inline uint32_t hash_bytes(const TileInput &in, const TileBytes &tile, uint32_t position, uint32_t bytes) {
    uint32_t hash = in.seed, end = position + bytes / 4 * 4;
    for (uint32_t at = position; at < end; at += 4) hash = murmur3_mix(hash, tile.scrambled[at]);
    if (bytes % 4 != 0) {
        uint32_t block = __funnelshift_r(tile.words[end / 4], tile.words[end / 4 + 1], end % 4 * 8);
        hash = murmur3_rest(hash, block, bytes % 4);
    }
    return shingle_hash(murmur3_finish(hash, bytes));
}

// Like hash_bytes, for a number of bytes that is known at compile time.
template <uint32_t kBytes>
__device__ inline uint32_t hash_known_bytes(const TileInput &in, const TileBytes &tile, uint32_t position) {
    static_assert(kBytes % 4 == 0, "whole blocks");
    uint32_t hash = in.seed;
    UNROLL(kBytes)
    for (uint32_t at = 0; at < kBytes; at += 4) hash = murmur3_mix(hash, tile.scrambled[position + at]);
    return shingle_hash(murmur3_finish(hash, kBytes));
}

// Hashes the shingles that start in the tile. Every warp has an equal part of the characters.
template <class Team>
__device__ inline void hash_single_bytes(const TileInput &in, const TileBytes &tile, TileState *state) {
    constexpr uint32_t kUsual = 24; // the default k
    for_each_part<Team>(tile, state, [&](uint32_t segment, uint32_t first, uint32_t limit) {
        uint32_t row = state->segment_row[segment], bytes = min(in.k, in.offsets[row + 1] - in.offsets[row]);
        uint32_t c = first + Team::rank() % 32, *hashes = state->hashes;
        if (bytes == kUsual) {
            UNROLL(1)
            for (; c < limit; c += 32) hashes[c] = hash_known_bytes<kUsual>(in, tile, c);
        } else {
            UNROLL(1)
            for (; c < limit; c += 32) hashes[c] = hash_bytes(in, tile, c, bytes);
        }
    });
}

} // namespace millrace
