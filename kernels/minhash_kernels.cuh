// The kernels of minhash.
//
// A block processes a tile of 2 KiB. It hashes the shingles that start in the tile (minhash_bytes.cuh and
// minhash_characters.cuh), and then computes signatures from the hashes (minhash_sign.cuh).
//
// The theoretical limit is for k=24, 128 permutations and ASCII text, with one shingle per byte. It follows from the sm_90 code
// (cuobjdump --dump-sass). A warp executes these instructions for one shingle:
//
//                              IMAD    VIMNMX3   others   all    FMA-heavy pipe
//     the loop of minhash_sign    4       2         0.33     6.3    8.0 clocks
//     hashing the shingle         0.31              1.0      1.3    0.6
//     scrambling its block        0.09              0.18     0.27   0.2
//
// The loop has 405 instructions for 64 shingles. Each of a lane's four permutations takes an IMAD for each shingle, and a VIMNMX3
// for two. Each of an SM's four schedulers issues an instruction per clock, and has 16 lanes of the FMA-heavy pipe, which
// processes IMAD. An IMAD of a warp therefore occupies the pipe for 2 clocks. The total is 8.8 clocks of that pipe and 7.9 of the
// scheduler. An H100 SXM has 132 * 4 schedulers at 1.755 GHz (boost 1.98 GHz). So the limit is 132 * 4 * 1.755e9 / 8.8 = 105e9
// shingles per second, which is 105 GB/s. The schedulers also issue the rest of a tile's instructions: staging, finding rows, merging minima. With 260
// permutations, the limit is 54 GB/s: the loop runs twice, and the last four permutations need one IMAD per lane for each
// permutation and 32 shingles.
#pragma once

#include "minhash_bytes.cuh"
#include "minhash_characters.cuh"
#include "minhash_sign.cuh"

namespace millrace {

// The threads of a block. On an H100, the plain kernel is 6 % faster with 128 threads than with 256, because 128 threads need
// fewer instructions for each tile.
constexpr uint32_t kMinhashThreads = 128;

// The number of blocks for which a multiprocessor must have registers. Before compute capability 8.0, a multiprocessor holds
// 1,024 threads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr uint32_t kMinhashBlocks = 4;
#else
constexpr uint32_t kMinhashBlocks = 5;
#endif
using MinhashTeam = BlockTeam<kMinhashThreads>;

// Computes the hashes of a tile's shingles from its staged bytes. The team must have cleared the row starts and
// synchronized.
template <class Team>
__device__ inline void hash_tile(const TileInput &in, TileBytes *tile, TileState *state) {
    mark_rows<Team>(in, state);
    scramble_blocks<Team>(in, tile, state);
    Team::sync();
    count_rows<Team>(state);
    bool multibyte = state->multibyte;
    if (multibyte) {
        find_characters<Team>(in, tile, state);
    } else if (Team::rank() == 0) {
        state->tile_characters = in.length;
    }
    Team::sync();
    if (state->tile_characters == 0) return; // no character starts here: the tile is inside one very long character
    list_segments<Team>(in, state);
    if (multibyte) find_far_characters<Team>(in, tile, state);
    Team::sync();
    if (multibyte) {
        hash_shingles<Team>(in, *tile, state);
    } else {
        hash_single_bytes<Team>(in, *tile, state);
    }
}

// Processes one tile with one block. If a block processes several tiles, a barrier must separate them.
__device__ __forceinline__ void minhash_tile(const MinhashWork &work, uint32_t number, TileBytes *tile, TileState *state) {
    TileInput in = tile_input(work, number);
    stage_bytes<MinhashTeam>(in, tile);
    clear_rows<MinhashTeam>(state);
    __syncthreads();
    hash_tile<MinhashTeam>(in, tile, state);
    __syncthreads();
    sign_tile<MinhashTeam>(work, in, *tile, state, ResultSink{work.result, work.hashes});
}

static __global__ void __launch_bounds__(kMinhashThreads, kMinhashBlocks) minhash_tiles(MinhashWork work) {
    __shared__ TileBytes tile;
    __shared__ TileState state;
    minhash_tile(work, blockIdx.x, &tile, &state);
}

// Fills in the tile index, sets the tile counter to 0, and initializes every row's values. It sets the values of an empty row to
// their final values, and the values of any other row to the minimum of no values. Thread number `first` of `stride` threads
// calls it, in whole warps. Each warp initializes one row at a time.
__device__ inline void minhash_begin(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t entries,
                                     uint32_t hashes, uint32_t *index, uint32_t *taken, uint32_t *result,
                                     uint32_t first, uint32_t stride) {
    if (first == 0 && entries != 0) *taken = 0;
    uint32_t lane = first % 32;
    for (uint32_t row = first / 32; row < rows; row += stride / 32) {
        uint32_t from = offsets[row], to = offsets[row + 1], *values = result + static_cast<uint64_t>(row) * hashes;
        for (uint32_t i = lane; i < hashes; i += 32) values[i] = from == to ? kEmptyRow : kNoMinimum;
        uint32_t tile = tile_count(from, kMinhashTileBytes), end = tile_count(to, kMinhashTileBytes); // tiles that begin in the row
        for (uint32_t t = tile + lane; t < end; t += 32) index[t] = row;
        if (lane == 0 && from != to && to == bytes) index[entries - 1] = row;
    }
}

static __global__ void minhash_prepare(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t entries,
                                       uint32_t hashes, uint32_t *index, uint32_t *taken, uint32_t *result) {
    minhash_begin(offsets, rows, bytes, entries, hashes, index, taken, result, blockIdx.x * blockDim.x + threadIdx.x,
                  gridDim.x * blockDim.x);
}

} // namespace millrace
