// The kernels of minhash.
//
// A block processes a tile of 2 KiB. It hashes the shingles that start in the tile (minhash_tile.cuh), and then
// computes signatures from the hashes (minhash_sign.cuh).
//
// The theoretical limit is for k=24, 128 permutations and ASCII, with one shingle per byte. It is derived from the
// sm_90 code of the loop (cuobjdump --dump-sass), which has 56 instructions for each eight shingles of a permutation.
// For one shingle:
//
//     2 IMAD.WIDE.U32              the products                        FMA-heavy pipe
//     1/2 IMAD.X, 1/2 IADD3.X      the result (kSumsMoved)             FMA-heavy, ALU pipe
//     IADD3, SHF                   the middle words' sum, its shift    ALU pipe
//     1/2 + 1/2 VIMNMX3            minimum, greatest word 1            ALU pipe, two values at a time
//     1/4 LDS.128, 3/4 others      four hashes at once, the loop
//
// Each of an SM's four schedulers has 16 lanes of either pipe, so an instruction occupies a warp for 2 clocks, and a
// wide multiply-add for 4. The total is 9 clocks of the FMA-heavy pipe and 7 of the ALU pipe. An H100 SXM has 132 * 4
// schedulers at 1.755 GHz (boost 1.98): 132 * 4 * 32 * 1.755e9 / (128 * 9) = 25.7e9 shingles per second, so 25.7 GB/s,
// minus the FMA-heavy pipe's share for hashing the shingles.
#pragma once

#include "minhash_sign.cuh"
#include "minhash_tile.cuh"

namespace millrace {

constexpr uint32_t kMinhashThreads = 256;

// The number of blocks that a multiprocessor must be able to hold at once. Before compute capability 8.0, it holds
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
    Team::sync();
    find_characters<Team>(in, tile, state);
    Team::sync();
    if (state->tile_characters == 0) return; // no character starts here: the tile is inside one very long character
    list_segments<Team>(in, state);
    find_far_characters<Team>(in, state);
    Team::sync();
    hash_shingles<Team>(in, *tile, state);
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

// Fills in the tile index, sets the tile counter to 0, and initializes every signature to the signature of an empty
// row. Thread number `first` of `stride` threads calls it.
__device__ inline void minhash_begin(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t entries,
                                     uint64_t values, uint32_t *index, uint32_t *taken, uint32_t *result, uint64_t first,
                                     uint64_t stride) {
    if (first == 0 && entries != 0) *taken = 0;
    for (uint64_t i = first; i < values; i += stride) result[i] = kNoShingle;
    for (uint64_t i = first; i < entries; i += stride) {
        index[i] = tile_index_entry(offsets, rows, bytes, kMinhashTileBytes, static_cast<uint32_t>(i));
    }
}

static __global__ void minhash_prepare(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t entries,
                                       uint64_t values, uint32_t *index, uint32_t *taken, uint32_t *result) {
    minhash_begin(offsets, rows, bytes, entries, values, index, taken, result,
                  static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                  static_cast<uint64_t>(gridDim.x) * blockDim.x);
}

} // namespace millrace
