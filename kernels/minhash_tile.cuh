// One tile of minhash: its bytes in shared memory, its rows, and the parts into which a team divides its characters.
//
// A team of threads (team.cuh) stages the tile and a halo after it in shared memory, finds the rows, and hashes every
// shingle that starts in the tile. If every byte starts a character, as in ASCII, minhash_bytes.cuh hashes the tile.
// Otherwise minhash_characters.cuh does. Positions count from the start of the tile.
#pragma once

#include "load.cuh"
#include "math/murmur3.cuh"
#include "math/permutation.cuh"
#include "math/ragged.cuh"
#include "math/shingle.cuh"
#include "team.cuh"

namespace millrace {

constexpr uint32_t kMinhashTileBytes = 2048;
constexpr uint32_t kMostHaloBytes = 4 * kMostShingleCharacters;
constexpr uint32_t kMostTeamWarps = 8;
constexpr uint32_t kEmptyRow = 0;            // the values of a row without shingles
constexpr uint32_t kNoMinimum = 0xffffffffu; // the minimum of no values

// The number of bytes staged after a tile.
inline uint32_t halo_bytes(uint32_t k) { return (4 * k + 15) / 16 * 16; }

// One launch over a batch, in the form that its kernels use.
struct MinhashWork {
    const uint8_t *batch;
    const uint32_t *offsets;
    uint32_t bytes; // size of the batch; not 0
    uint32_t tiles;
    uint32_t k;
    uint32_t halo; // halo_bytes(k)
    uint32_t seed; // seed of the shingles' hashes: a of the first permutation
    const Permutation *permutations;
    uint32_t hashes;       // number of permutations
    const uint32_t *index; // the tile index (ragged.cuh)
    uint32_t *taken;       // tile counter, initially 0, for kernels whose blocks process several tiles
    uint32_t *result;
};

// The batch and the tile's position in the batch. TileInput is the same for all threads of a team.
struct TileInput {
    const uint8_t *batch;
    const uint32_t *offsets;
    uint32_t bytes;               // size of the batch
    uint32_t k;
    uint32_t seed;                // seed of the shingles' hashes
    uint32_t start;               // start of the tile in the batch
    uint32_t length;              // length of the tile
    uint32_t staged;              // number of bytes in the tile and the halo
    uint32_t first_row, last_row; // the range that contains the tile's rows
};

__device__ inline TileInput tile_input(const MinhashWork &work, uint32_t tile) {
    TileInput in;
    in.batch = work.batch, in.offsets = work.offsets, in.bytes = work.bytes, in.k = work.k, in.seed = work.seed;
    in.start = tile * kMinhashTileBytes;
    in.length = min(work.bytes - in.start, kMinhashTileBytes);
    in.staged = min(work.bytes - in.start, kMinhashTileBytes + work.halo);
    in.first_row = work.index[tile], in.last_row = work.index[tile + 1];
    return in;
}

// A team's state for its tile. A segment is the part of a non-empty row that lies in the tile. Segments are numbered in
// order.
struct TileState {
    alignas(16) uint32_t hashes[kMinhashTileBytes];   // hashes[c]: hash of the shingle that starts with character c
    uint32_t segment_row[kMinhashTileBytes];
    uint16_t segment_first[kMinhashTileBytes];        // the segment's shingles start with the characters from first to
    uint16_t segment_limit[kMinhashTileBytes];        // limit - 1; no shingles if limit <= first
    PositionSet<kMinhashTileBytes> row_starts;        // starts of non-empty rows
    uint32_t multibyte;                               // whether a byte of the tile's shingles doesn't start a character
    uint32_t characters;                              // number of characters that start in the tile and the halo; set only if multibyte
    uint32_t tile_characters;                         // number of characters that start in the tile
    uint32_t far_characters;                          // number of positions in TileCharacters::far
    uint32_t warp_totals[kMostTeamWarps];
};

// The starts of characters, for tiles with characters of several bytes.
struct TileCharacters {
    uint16_t positions[kMinhashTileBytes + kMostHaloBytes]; // characters in the tile and the halo
    uint32_t far[kMostShingleCharacters];                   // characters after the halo, if the last shingles need them
};

// The staged bytes and the data derived from them. Sixteen additional bytes allow a read of a word past the end.
struct TileBytes {
    alignas(16) uint32_t words[(kMinhashTileBytes + kMostHaloBytes + 16) / 4];
    union {
        TileCharacters starts; // used if multibyte
        // Otherwise, the scrambled block of hash input that starts at each position.
        alignas(16) uint32_t scrambled[kMinhashTileBytes + kMostShingleCharacters];
    };
};

// Stages sixteen bytes of the tile, at a multiple of 16.
__device__ inline void stage_16(const TileInput &in, TileBytes *tile, uint32_t at) {
    uint32_t words[4];
    load_16(in.batch, in.start + at, in.start + in.staged, words);
    *reinterpret_cast<uint4 *>(tile->words + at / 4) = make_uint4(words[0], words[1], words[2], words[3]);
}

template <class Team>
__device__ inline void stage_bytes(const TileInput &in, TileBytes *tile) {
    for (uint32_t at = Team::rank() * 16; at < in.staged; at += Team::kThreads * 16) stage_16(in, tile, at);
}

template <class Team>
__device__ inline void clear_rows(TileState *state) {
    for (uint32_t w = Team::rank(); w < state->row_starts.kWords; w += Team::kThreads) state->row_starts.bits[w] = 0;
    if (Team::rank() == 0) state->multibyte = 0;
}

// Marks the starts of the tile's non-empty rows.
template <class Team>
__device__ inline void mark_rows(const TileInput &in, TileState *state) {
    for (uint32_t row = in.first_row + Team::rank(); row <= in.last_row; row += Team::kThreads) {
        uint32_t from = in.offsets[row];
        if (from < in.start || from - in.start >= in.length || in.offsets[row + 1] == from) continue;
        uint32_t position = from - in.start;
        atomicOr(&state->row_starts.bits[position / 32], 1u << position % 32);
    }
}

// Returns the sum of the values of the warp's lanes up to and including this lane.
__device__ inline uint32_t warp_scan(uint32_t value) {
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t before = __shfl_up_sync(0xffffffffu, value, distance);
        if (threadIdx.x % 32 >= distance) value += before;
    }
    return value;
}

// Counts the row starts before each word of their set. Only the team's first warp does the work.
template <class Team>
__device__ inline void count_rows(TileState *state) {
    auto &rows = state->row_starts;
    static_assert(rows.kWords == 64, "two words for each lane");
    uint32_t lane = Team::rank();
    if (lane >= 32) return;
    uint32_t low = __popc(rows.bits[2 * lane]), both = low + __popc(rows.bits[2 * lane + 1]);
    uint32_t before = warp_scan(both) - both;
    rows.before[2 * lane] = before, rows.before[2 * lane + 1] = before + low;
}

// Returns the segment that contains a position of the tile. Segment 0 has no row start if its row began in an earlier
// tile.
__device__ inline uint32_t segment_at(const TileState *state, uint32_t position) {
    return state->row_starts.rank(position) - (state->row_starts.has(0) ? 1 : 0);
}

// Lists the segments. If every byte starts a character, it also finds the range of each segment's shingles.
template <class Team>
__device__ inline void list_segments(const TileInput &in, TileState *state) {
    for (uint32_t row = in.first_row + Team::rank(); row <= in.last_row; row += Team::kThreads) {
        uint32_t from = in.offsets[row], to = in.offsets[row + 1];
        if (from == to || to <= in.start || from >= in.start + in.length) continue;
        bool begins = from >= in.start;
        uint32_t first = begins ? from - in.start : 0, end = to - in.start;
        uint32_t limit = end >= in.k ? min(end - in.k + 1, in.length) : 0;
        if (begins && limit <= first) limit = first + 1; // the row has fewer than k characters
        uint32_t segment = begins ? segment_at(state, first) : 0;
        state->segment_row[segment] = row;
        state->segment_first[segment] = state->multibyte ? 0 : static_cast<uint16_t>(first);
        state->segment_limit[segment] = state->multibyte ? 0 : static_cast<uint16_t>(limit);
    }
}

// Divides the tile's characters among the team's warps. For each segment, it calls part(segment, first, limit) for the shingles
// that start with this warp's characters, from first to limit - 1. All lanes of a warp make the same calls.
template <class Team, class Part>
__device__ inline void for_each_part(const TileBytes &tile, const TileState *state, Part part) {
    constexpr uint32_t kWarps = Team::kThreads / 32, kUnit = 4; // hashes are read four at a time
    uint32_t each = (state->tile_characters + kWarps * kUnit - 1) / (kWarps * kUnit) * kUnit;
    uint32_t from = Team::rank() / 32 * each, to = min(from + each, state->tile_characters);
    if (from >= to) return;
    auto segment_of = [&](uint32_t character) {
        return segment_at(state, state->multibyte ? tile.starts.positions[character] : character);
    };
    uint32_t last = segment_of(to - 1);
    for (uint32_t segment = segment_of(from); segment <= last; segment++) {
        uint32_t first = max(from, static_cast<uint32_t>(state->segment_first[segment]));
        uint32_t limit = min(to, static_cast<uint32_t>(state->segment_limit[segment]));
        if (first < limit) part(segment, first, limit);
    }
}

} // namespace millrace
