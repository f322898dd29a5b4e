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

#include "minhash_bytes.cuh"
#include "minhash_characters.cuh"
#include "minhash_sign.cuh"

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

// Fills in the tile index, sets the tile counter to 0, and initializes the values of every row: to those of an empty row,
// or to the minimum of no values. Thread number `first` of `stride` threads calls it.
__device__ inline void minhash_begin(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t entries,
                                     uint32_t hashes, uint32_t *index, uint32_t *taken, uint32_t *result,
                                     uint32_t first, uint32_t stride) {
    if (first == 0 && entries != 0) *taken = 0;
    uint32_t row = first / hashes, value = first % hashes, rows_each = stride / hashes, values_each = stride % hashes;
    while (row < rows) {
        bool empty = offsets[row] == offsets[row + 1];
        result[static_cast<uint64_t>(row) * hashes + value] = empty ? kEmptyRow : kNoMinimum;
        row += rows_each, value += values_each;
        if (value >= hashes) row++, value -= hashes;
    }
    for (uint32_t i = first; i < entries; i += stride) {
        index[i] = tile_index_entry(offsets, rows, bytes, kMinhashTileBytes, i);
    }
}

static __global__ void minhash_prepare(const uint32_t *offsets, uint32_t rows, uint32_t bytes, uint32_t entries,
                                       uint32_t hashes, uint32_t *index, uint32_t *taken, uint32_t *result) {
    minhash_begin(offsets, rows, bytes, entries, hashes, index, taken, result, blockIdx.x * blockDim.x + threadIdx.x,
                  gridDim.x * blockDim.x);
}

} // namespace millrace
