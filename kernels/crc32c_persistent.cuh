// crc32c as a persistent kernel.
#pragma once

#include "crc32c_kernels.cuh"
#include "persistent.cuh"

namespace millrace {

static __global__ void __launch_bounds__(kCrc32cThreads)
    crc32c_persistent(const Crc32cTables *tables, PersistentMemory memory) {
    __shared__ uint32_t slice[4][256];
    __shared__ Crc32cTile tile;
    crc32c_load_slices(tables, slice);
    serve_mailbox(memory, 1, [&](uint32_t bytes) {
        uint32_t tiles = tile_count(bytes, kCrc32cTileBytes), entries = bytes == 0 ? 0 : tiles + 1;
        crc32c_begin(tables, memory.offsets, 1, bytes, entries, memory.scratch, memory.result, threadIdx.x, blockDim.x);
        __syncthreads();
        for (uint32_t t = 0; t < tiles; t++) {
            crc32c_tile(tables, slice, &tile, memory.payload, memory.offsets, bytes, memory.scratch, t, memory.result);
        }
    });
}

} // namespace millrace
