// minhash as a resident kernel.
#pragma once

#include "minhash_kernels.cuh"
#include "resident.cuh"

namespace millrace {

static __global__ void __launch_bounds__(kMinhashThreads)
    minhash_resident(uint32_t k, uint32_t halo, const PermutationWords *permutations, uint32_t hashes,
                     millrace_resident room) {
    __shared__ TileBytes tile;
    __shared__ TileState state;
    serve_mailbox(room, hashes, [&](const ResidentBatch &b) {
        uint32_t tiles = tile_count(b.bytes, kMinhashTileBytes), entries = b.bytes == 0 ? 0 : tiles + 1;
        MinhashWork work = {b.batch, b.offsets, b.bytes, tiles, k, halo, permutations, hashes,
                            b.scratch, b.scratch + entries, b.result};
        minhash_begin(b.offsets, b.rows, b.bytes, entries, static_cast<uint64_t>(b.rows) * hashes, b.scratch, work.taken,
                      b.result, threadIdx.x, blockDim.x);
        __syncthreads();
        for (uint32_t t = 0; t < tiles; t++) {
            minhash_tile(work, t, &tile, &state);
            __syncthreads(); // before the next tile overwrites this one
        }
    });
}

} // namespace millrace
