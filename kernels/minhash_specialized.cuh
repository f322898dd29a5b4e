// minhash with specialized warps. It needs compute capability 9.0.
//
// In the plain kernel, all blocks begin with staging, searching and hashing, which hardly use the multipliers. At about the same
// time, all blocks reach the loop over the permutations, which uses little else. Since every block has the same amount of work,
// the blocks stay in step. In this kernel the loop never stops. In each block, four producer warps process tile after tile and
// write hashes to a ring of two slots. Eight consumer warps compute signatures from the slots.
//
//     producers   tile 0 | tile 1 | wait | tile 2 | wait | tile 3 ...        loaded: the copy engine to producers
//     consumers          | tile 0        | tile 1        | tile 2 ...        full, empty: the ring's two ways
//
// The bytes of a tile are loaded while the previous tile is hashed. If the batch's address is a multiple of 16, the copy engine
// loads them (cp.async.bulk). Otherwise, and for the last few bytes, the producers load them. Only the producers wait for that
// load, which may take as long as a whole pass through the ring.
//
// The split of the warps: for 32 shingles, a warp needs about 60 instructions to find and hash them, and 205 for the loop over
// 128 permutations. The producers therefore have about a fifth of the work, in long chains of dependent instructions. They are a
// third of the warps, so that the loop always has work. Blocks process the whole batch, three on each multiprocessor. Blocks get
// tiles from a counter, so that no block finishes long before the others.
#pragma once

#include "minhash_kernels.cuh"

namespace millrace {

constexpr uint32_t kProducerThreads = 128;
constexpr uint32_t kConsumerThreads = 256;
constexpr uint32_t kSpecializedThreads = kProducerThreads + kConsumerThreads;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr uint32_t kSpecializedBlocks = 2; // older GPUs support this number; the kernel isn't launched on them
#else
constexpr uint32_t kSpecializedBlocks = 3; // per multiprocessor
#endif
constexpr uint32_t kRingSlots = 2;

using ProducerTeam = WarpTeam<0, kProducerThreads, 1>;
using ConsumerTeam = WarpTeam<kProducerThreads, kConsumerThreads, 2>;

// A block's shared memory. Step number t of the block uses slot t modulo kRingSlots of every array.
struct SpecializedShared {
    TileBytes bytes[kRingSlots];
    TileState states[kRingSlots];
    uint32_t tile[kRingSlots];            // number of the tile in the slot; work.tiles or more ends the consumers' work
    uint32_t next_tile;                   // number of the producers' next tile
    alignas(8) uint64_t loaded[kRingSlots]; // barriers: the bytes have been loaded
    uint64_t full[kRingSlots];            // barriers: the hashes have been computed
    uint64_t empty[kRingSlots];           // barriers: the hashes have been used
};

// Starts loading a tile's bytes. Every producer arrives at `loaded` once.
__device__ inline void begin_load(const TileInput &in, TileBytes *bytes, uint64_t *loaded) {
    const uint8_t *from = in.batch + in.start;
    uint32_t bulk = reinterpret_cast<uint64_t>(from) % 16 == 0 ? in.staged / 16 * 16 : 0;
    for (uint32_t at = bulk + ProducerTeam::rank() * 16; at < in.staged; at += kProducerThreads * 16) {
        stage_16(in, bytes, at);
    }
    if (ProducerTeam::rank() == 0 && bulk != 0) {
        mbarrier_arrive_expect(loaded, bulk);
        bulk_load(bytes->words, from, bulk, loaded);
    } else {
        mbarrier_arrive(loaded);
    }
}

// The producers' loop. A block's first tile has the block's number. All other tiles come from the counter.
__device__ inline void produce(const MinhashWork &work, SpecializedShared *shared) {
    uint32_t tile = blockIdx.x;
    if (tile < work.tiles) begin_load(tile_input(work, tile), &shared->bytes[0], &shared->loaded[0]);
    for (uint32_t turn = 0;; turn++) {
        uint32_t slot = turn % kRingSlots, other = (turn + 1) % kRingSlots, parity = turn / kRingSlots % 2;
        TileState *state = &shared->states[slot];
        mbarrier_wait(&shared->empty[slot], parity ^ 1);
        if (ProducerTeam::rank() == 0) shared->tile[slot] = tile;
        if (tile >= work.tiles) {
            mbarrier_arrive(&shared->full[slot]);
            return;
        }
        if (ProducerTeam::rank() == 0) shared->next_tile = gridDim.x + atomicAdd(work.taken, 1u);
        clear_rows<ProducerTeam>(state);
        mbarrier_wait(&shared->loaded[slot], parity);
        bulk_fence();
        ProducerTeam::sync(); // all threads know the next tile, and no thread still reads the previous tile's bytes
        uint32_t next = shared->next_tile;
        if (next < work.tiles) begin_load(tile_input(work, next), &shared->bytes[other], &shared->loaded[other]);
        hash_tile<ProducerTeam>(tile_input(work, tile), &shared->bytes[slot], state);
        mbarrier_arrive(&shared->full[slot]);
        tile = next;
    }
}

// The consumers' loop.
__device__ inline void consume(const MinhashWork &work, SpecializedShared *shared) {
    for (uint32_t turn = 0;; turn++) {
        uint32_t slot = turn % kRingSlots, parity = turn / kRingSlots % 2;
        mbarrier_wait(&shared->full[slot], parity);
        uint32_t tile = shared->tile[slot];
        if (tile >= work.tiles) return;
        sign_tile<ConsumerTeam>(work, tile_input(work, tile), shared->bytes[slot], &shared->states[slot],
                                ResultSink{work.result, work.hashes});
        mbarrier_arrive(&shared->empty[slot]);
    }
}

__device__ inline void specialized_block(const MinhashWork &work, SpecializedShared *shared) {
    if (threadIdx.x == 0) {
        for (uint32_t slot = 0; slot < kRingSlots; slot++) {
            mbarrier_init(&shared->loaded[slot], kProducerThreads);
            mbarrier_init(&shared->full[slot], kProducerThreads);
            mbarrier_init(&shared->empty[slot], kConsumerThreads);
        }
        mbarrier_publish();
    }
    __syncthreads();
    if (threadIdx.x < kProducerThreads) {
        produce(work, shared);
    } else {
        consume(work, shared);
    }
}

static __global__ void __launch_bounds__(kSpecializedThreads, kSpecializedBlocks) minhash_specialized(MinhashWork work) {
#ifdef MILLRACE_HOPPER
    DYNAMIC_SHARED(SpecializedShared, shared);
    specialized_block(work, shared);
#else
    __trap(); // devices without the capability never launch this kernel (minhash_variants.cuh)
#endif
}

} // namespace millrace
