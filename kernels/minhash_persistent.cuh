// minhash as a persistent kernel.
#pragma once

#include "minhash_kernels.cuh"
#include "persistent.cuh"

namespace millrace {

static __global__ void __launch_bounds__(kMinhashThreads)
    minhash_persistent(uint32_t k, uint32_t halo, const Permutation *permutations, uint32_t hashes,
                       PersistentMemory memory) {
    __shared__ TileBytes tile;
    __shared__ TileState state;
    serve_mailbox(memory, hashes, [&](uint32_t bytes) {
        uint32_t tiles = tile_count(bytes, kMinhashTileBytes), entries = bytes == 0 ? 0 : tiles + 1;
        MinhashWork work = {memory.payload, memory.offsets, bytes, tiles, k, halo, permutations->a,
                            permutations, hashes, memory.scratch, memory.scratch + entries, memory.result};
        minhash_begin(memory.offsets, 1, bytes, entries, hashes, memory.scratch, work.taken, memory.result, threadIdx.x,
                      blockDim.x);
        __syncthreads();
        for (uint32_t t = 0; t < tiles; t++) {
            minhash_tile(work, t, &tile, &state);
            __syncthreads(); // so that the next tile may overwrite `tile`
        }
    });
}

} // namespace millrace
