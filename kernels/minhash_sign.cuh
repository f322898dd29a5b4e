// Computes signatures from the hashes of a tile. Every warp of a team has an equal part of the tile's characters, and processes
// all permutations for it. The work is therefore balanced for every number of permutations.
//
// 32, 64, 96 or 128 permutations at a time are spread over the lanes of the warp. All lanes read the same four hashes
// with one access to shared memory, and use them for all of their permutations. If fewer than 32 permutations are left,
// the hashes are spread over the lanes instead.
//
// The minimum over each part of a segment goes to a sink. The sink merges the minima of a row.
#pragma once

#include "math/permutation.cuh"
#include "minhash_tile.cuh"
#include "reduce.cuh"

namespace millrace {

// The part of a segment that a warp processes: the shingles that start with the characters [first, limit).
struct SegmentPart {
    uint32_t row;
    uint32_t row_begin; // beginning of the row in the batch
    bool leaves;        // whether the row has bytes in other tiles
    bool whole;         // whether the part is the whole segment
    uint32_t first, limit;
};

// Merges minima in the result, in global memory.
struct ResultSink {
    uint32_t *result;
    uint32_t hashes;

    __device__ void put(const SegmentPart &part, uint32_t permutation, uint32_t minimum) const {
        uint32_t *value = result + static_cast<uint64_t>(part.row) * hashes + permutation;
        if (part.whole && !part.leaves) { // the row has no other writer
            *value = minimum;
        } else {
            atomicMin(value, minimum);
        }
    }
};

// Processes permutations base to base + 32 * kEach - 1. Each lane has kEach of them.
template <int kEach, class Sink>
__device__ inline void sign_columns(const MinhashWork &work, const uint32_t *hashes, const SegmentPart &part,
                                    uint32_t base, const Sink &sink) {
    uint32_t number = base + threadIdx.x % 32, least[kEach];
    Permutation p[kEach];
    for (int j = 0; j < kEach; j++) p[j] = work.permutations[number + 32 * j], least[j] = kNoMinimum;
    auto one = [&](uint32_t h) {
        for (int j = 0; j < kEach; j++) least[j] = min2(least[j], permute(p[j], h));
    };
    uint32_t begin = min((part.first + 3) / 4 * 4, part.limit), vectors = (part.limit - begin) / 4;
    const uint4 *four = reinterpret_cast<const uint4 *>(hashes + begin);
    UNROLL(1)
    for (uint32_t i = part.first; i < begin; i++) one(hashes[i]);
    UNROLL(16)
    for (uint32_t v = 0; v < vectors; v++) {
        uint4 h = four[v];
        for (int j = 0; j < kEach; j++) {
            least[j] = min3(least[j], permute(p[j], h.x), permute(p[j], h.y));
            least[j] = min3(least[j], permute(p[j], h.z), permute(p[j], h.w));
        }
    }
    UNROLL(1)
    for (uint32_t i = begin + vectors * 4; i < part.limit; i++) one(hashes[i]);
    for (int j = 0; j < kEach; j++) sink.put(part, number + 32 * j, least[j]);
}

// Processes up to four permutations, from `base` on. Each lane processes a 32nd of the hashes.
template <class Sink>
__device__ inline void sign_few(const MinhashWork &work, const uint32_t *hashes, const SegmentPart &part, uint32_t base,
                                const Sink &sink) {
    constexpr int kFew = 4;
    uint32_t lane = threadIdx.x % 32, least[kFew], mine = kNoMinimum;
    Permutation p[kFew];
    for (uint32_t j = 0; j < kFew; j++) p[j] = work.permutations[min(base + j, work.hashes - 1)], least[j] = kNoMinimum;
    for (uint32_t i = part.first + lane; i < part.limit; i += 32) {
        uint32_t h = hashes[i];
        for (int j = 0; j < kFew; j++) least[j] = min2(least[j], permute(p[j], h));
    }
    uint32_t count = min(work.hashes - base, static_cast<uint32_t>(kFew));
    for (uint32_t j = 0; j < kFew; j++) {
        uint32_t of_all = j < count ? reduce_min(least[j]) : kNoMinimum;
        if (lane == j) mine = of_all;
    }
    if (lane < count) sink.put(part, base + lane, mine);
}

template <class Sink>
__device__ inline void sign_part(const MinhashWork &work, const uint32_t *hashes, const SegmentPart &part,
                                 const Sink &sink) {
    uint32_t base = 0;
    for (; base + 128 <= work.hashes; base += 128) sign_columns<4>(work, hashes, part, base, sink);
    switch ((work.hashes - base) / 32) {
    case 3: sign_columns<3>(work, hashes, part, base, sink); break;
    case 2: sign_columns<2>(work, hashes, part, base, sink); break;
    case 1: sign_columns<1>(work, hashes, part, base, sink); break;
    }
    for (base = work.hashes / 32 * 32; base < work.hashes; base += 4) sign_few(work, hashes, part, base, sink);
}

template <class Team, class Sink>
__device__ inline void sign_tile(const MinhashWork &work, const TileInput &in, const TileBytes &tile,
                                 const TileState *state, const Sink &sink) {
    for_each_part<Team>(tile, state, [&](uint32_t segment, uint32_t first, uint32_t limit) {
        SegmentPart part = {};
        part.row = state->segment_row[segment];
        part.row_begin = in.offsets[part.row];
        part.leaves = part.row_begin < in.start || in.offsets[part.row + 1] > in.start + in.length;
        part.whole = first == state->segment_first[segment] && limit == state->segment_limit[segment];
        part.first = first, part.limit = limit;
        sign_part(work, state->hashes, part, sink);
    });
}

} // namespace millrace
