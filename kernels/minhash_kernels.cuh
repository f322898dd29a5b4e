// The kernels of minhash.
//
// A block takes a tile of 2 KiB, hashes the shingles that start in it (minhash_tile.cuh), and then every thread
// takes a permutation and walks the hashes. All threads of a warp read the same hash at once, which shared memory
// serves in one go. With fewer permutations than threads, groups of threads share the tile's shingles out.
//
// The bound on paper (k=24, 128 permutations, ASCII: a shingle a byte), from the sm_90 code of the loop
// (cuobjdump --dump-sass), for each shingle and permutation:
//
//     2 IMAD.WIDE.U32, IMAD.X      the products, the result            FMA-heavy pipe
//     IADD3, SHF                   the middle words' sum, its shift    ALU pipe
//     1/2 + 1/2 VIMNMX3            minimum, greatest word 1            ALU pipe, two values at a time
//     1/4 LDS.128, 7/8 others      four hashes at once, the loop
//
// Each of an SM's four schedulers has 16 lanes of either pipe, so a warp's three ALU instructions take 6 clocks, and
// the three on the other pipe 6, or 10 if a wide multiply-add takes as long as two narrow ones. An H100 SXM has
// 132 * 4 schedulers at 1.755 GHz (boost 1.98): 132 * 4 * 32 * 1.755e9 / (128 * 6) = 38.6e9 shingles a second, so
// 38.6 GB/s, or 23.2 GB/s at 10 clocks, less what the hashing of the shingles itself takes.
#pragma once

#include "math/permutation.cuh"
#include "minhash_tile.cuh"

namespace millrace {

constexpr uint32_t kNoShingle = 0xffffffffu; // the contract's value where there is none

// A thread's share: one permutation over the characters [from, to) of the tile.
__device__ inline void sign_characters(const TileInput &in, const TileBytes &tile, const TileState *state,
                                const PermutationWords &permutation, uint32_t from, uint32_t to, uint32_t hashes,
                                uint32_t *signature) {
    uint32_t last = segment_at(state, tile.positions[to - 1]);
    for (uint32_t segment = segment_at(state, tile.positions[from]); segment <= last; segment++) {
        uint32_t first = max(from, static_cast<uint32_t>(state->segment_first[segment]));
        uint32_t limit = min(to, static_cast<uint32_t>(state->segment_limit[segment]));
        if (first >= limit) continue;
        uint32_t least = permute_least(permutation, state->hashes, first, limit);
        uint32_t row = state->segment_row[segment];
        uint32_t *value = signature + static_cast<uint64_t>(row) * hashes;
        // A row that begins and ends in this share has no other writer.
        bool whole = in.offsets[row] >= in.start && in.offsets[row + 1] <= in.start + in.length &&
                     first == state->segment_first[segment] && limit == state->segment_limit[segment];
        if (whole) {
            *value = least;
        } else {
            atomicMin(value, least);
        }
    }
}

// Gives every permutation to a thread, or to several that share the tile's characters out.
__device__ inline void sign_tile(const TileInput &in, const TileBytes &tile, const TileState *state,
                          const PermutationWords *permutations, uint32_t hashes, uint32_t *result) {
    for (uint32_t base = 0; base < hashes; base += kMinhashThreads) {
        uint32_t width = min(hashes - base, kMinhashThreads), groups = kMinhashThreads / width;
        uint32_t group = threadIdx.x / width, number = base + threadIdx.x % width;
        if (group >= groups) continue;
        uint32_t from = state->tile_characters * group / groups, to = state->tile_characters * (group + 1) / groups;
        if (from == to) continue;
        sign_characters(in, tile, state, permutations[number], from, to, hashes, result + number);
    }
}

static __global__ void __launch_bounds__(kMinhashThreads, 5)
    minhash_tiles(const uint8_t *batch, const uint32_t *offsets, uint32_t bytes, uint32_t k, uint32_t halo,
                  const PermutationWords *permutations, uint32_t hashes, const uint32_t *index, uint32_t *result) {
    __shared__ TileBytes tile;
    __shared__ TileState state;
    TileInput in;
    in.batch = batch, in.offsets = offsets, in.bytes = bytes, in.k = k;
    in.start = blockIdx.x * kMinhashTileBytes;
    in.length = min(bytes - in.start, kMinhashTileBytes);
    in.staged = min(bytes - in.start, kMinhashTileBytes + halo);
    in.first_row = index[blockIdx.x], in.last_row = index[blockIdx.x + 1];

    stage_bytes(in, &tile, &state);
    __syncthreads();
    mark_rows(in, &state);
    __syncthreads();
    find_characters(in, &tile, &state);
    __syncthreads();
    if (state.tile_characters == 0) return; // nothing starts here: the inside of one very long character
    list_segments(in, &state);
    find_far_characters(in, &state);
    __syncthreads();
    hash_shingles(in, tile, &state);
    __syncthreads();
    sign_tile(in, tile, &state, permutations, hashes, result);
}

// Fills in the tile index, and begins every signature with what an empty row has.
static __global__ void minhash_prepare(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t entries,
                                uint64_t values, uint32_t *index, uint32_t *result) {
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (uint64_t i = first; i < values; i += stride) result[i] = kNoShingle;
    for (uint64_t i = first; i < entries; i += stride) {
        index[i] = tile_index_entry(offsets, rows, bytes, kMinhashTileBytes, static_cast<uint32_t>(i));
    }
}

} // namespace millrace
