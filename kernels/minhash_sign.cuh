// Computes signatures from the hashes of a tile. Every thread of a team has a permutation and iterates over the
// hashes. All threads of a warp read the same hash at once, which shared memory serves in one access. If there are
// fewer permutations than threads, groups of threads divide the tile's shingles among themselves.
//
// The minimum of each segment goes to a sink. The sink merges the minima of rows that continue in other tiles.
#pragma once

#include "math/permutation.cuh"
#include "minhash_tile.cuh"

namespace millrace {

constexpr uint32_t kNoShingle = 0xffffffffu; // the specified value for a row without shingles

// The minimum over the part of a segment that one thread has processed.
struct Minimum {
    uint32_t row;
    uint32_t permutation;
    uint32_t value;
    bool whole_segment; // whether the thread has processed the whole segment
};

__device__ inline bool begins_before(const TileInput &in, uint32_t row) { return in.offsets[row] < in.start; }
__device__ inline bool ends_behind(const TileInput &in, uint32_t row) {
    return in.offsets[row + 1] > in.start + in.length;
}

// Merges minima in the result, in global memory.
struct ResultSink {
    uint32_t *result;
    uint32_t hashes;

    __device__ void put(const TileInput &in, const Minimum &minimum) const {
        uint32_t *value = result + static_cast<uint64_t>(minimum.row) * hashes + minimum.permutation;
        // A row that lies within this tile and was processed by one thread has no other writer.
        if (minimum.whole_segment && !begins_before(in, minimum.row) && !ends_behind(in, minimum.row)) {
            *value = minimum.value;
        } else {
            atomicMin(value, minimum.value);
        }
    }
};

// Signs a thread's share: one permutation over the characters [from, to) of the tile, where from < to.
template <class Sink>
__device__ inline void sign_characters(const TileInput &in, const TileBytes &tile, const TileState *state,
                                       const PermutationWords &permutation, uint32_t number, uint32_t from, uint32_t to,
                                       const Sink &sink) {
    uint32_t last = segment_at(state, tile.positions[to - 1]);
    for (uint32_t segment = segment_at(state, tile.positions[from]); segment <= last; segment++) {
        uint32_t first = max(from, static_cast<uint32_t>(state->segment_first[segment]));
        uint32_t limit = min(to, static_cast<uint32_t>(state->segment_limit[segment]));
        if (first >= limit) continue;
        bool whole = first == state->segment_first[segment] && limit == state->segment_limit[segment];
        uint32_t least = permute_least(permutation, state->hashes, first, limit);
        sink.put(in, Minimum{state->segment_row[segment], number, least, whole});
    }
}

// Assigns every permutation to a thread, or to several threads that divide the tile's characters among themselves.
template <class Team, class Sink>
__device__ inline void sign_tile(const MinhashWork &work, const TileInput &in, const TileBytes &tile,
                                 const TileState *state, const Sink &sink) {
    for (uint32_t base = 0; base < work.hashes; base += Team::kThreads) {
        uint32_t width = min(work.hashes - base, Team::kThreads), groups = Team::kThreads / width;
        uint32_t group = Team::rank() / width, number = base + Team::rank() % width;
        if (group >= groups) continue;
        uint32_t from = state->tile_characters * group / groups, to = state->tile_characters * (group + 1) / groups;
        if (from == to) continue;
        sign_characters(in, tile, state, work.permutations[number], number, from, to, sink);
    }
}

} // namespace millrace
