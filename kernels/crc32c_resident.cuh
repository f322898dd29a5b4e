// crc32c as a resident kernel.
#pragma once

#include "crc32c_kernels.cuh"
#include "resident.cuh"

namespace millrace {

static __global__ void __launch_bounds__(kCrc32cThreads)
    crc32c_resident(const Crc32cTables *tables, millrace_resident room) {
    __shared__ uint32_t slice[4][256];
    __shared__ Crc32cTile tile;
    crc32c_load_slices(tables, slice);
    serve_mailbox(room, 1, [&](const ResidentBatch &b) {
        uint32_t tiles = tile_count(b.bytes, kCrc32cTileBytes), entries = b.bytes == 0 ? 0 : tiles + 1;
        crc32c_begin(tables, b.offsets, b.rows, b.bytes, entries, b.scratch, b.result, threadIdx.x, blockDim.x);
        __syncthreads();
        for (uint32_t t = 0; t < tiles; t++) {
            crc32c_tile(tables, slice, &tile, b.batch, b.offsets, b.bytes, b.scratch, t, b.result);
        }
    });
}

} // namespace millrace
