// minhash with clusters of blocks that merge minima in their shared memory. It needs compute capability 9.0.
//
// If a row continues in another tile, the plain kernel merges its minima in the result in global memory. This takes one atomic
// operation for each permutation, tile, and group of threads that shares the permutation's work. Rows of 2 KiB almost always lie
// in two tiles, and a row of megabytes lies in thousands. In this kernel, the blocks of a cluster process neighboring tiles. The
// minima of a row that continues go through distributed shared memory to the block in whose tile the row begins. When all tiles
// of the cluster are signed, each block writes the row that leaves its tile once. The block uses plain stores if the row ends
// within the cluster, and otherwise one atomic operation for each permutation.
//
// The blocks don't share hashes, because a tile's hashes are already computed only once. If blocks divided the permutations of
// several tiles, they would read hashes over the slower network instead of locally, and need as many registers. This kernel only
// reduces the traffic of minima. It can be faster if rows are long or span tiles, but it waits twice for the slowest block of the
// cluster.
#pragma once

#include "cluster.cuh"
#include "minhash_kernels.cuh"

namespace millrace {

constexpr uint32_t kClusterBlocks = 4;

// A block's shared memory. A row leaves a tile if it begins in the tile and ends after it. At most one row leaves a
// tile. A row enters a cluster if it begins before the cluster and continues in it.
struct ClusterShared {
    TileBytes bytes;
    TileState state;
    uint32_t leaving[kMostHashes];  // minima of the row that leaves this block's tile
    uint32_t entering[kMostHashes]; // in block 0: minima of the row that enters the cluster
};

// Merges minima in the shared memory of the block where the row begins.
struct ClusterSink {
    ClusterShared *shared;
    uint32_t first_tile; // first tile of the cluster
    ResultSink result;

    __device__ void put(const SegmentPart &part, uint32_t permutation, uint32_t minimum) const {
        if (!part.leaves) {
            result.put(part, permutation, minimum);
            return;
        }
        uint32_t begins = part.row_begin / kMinhashTileBytes;
        uint32_t *minima = begins < first_tile ? cluster_peer(shared->entering, 0)
                                               : cluster_peer(shared->leaving, begins - first_tile);
        atomicMin(&minima[permutation], minimum);
    }
};

// Writes the row that leaves this block's tile.
__device__ inline void write_leaving(const MinhashWork &work, const TileInput &in, const ClusterShared *shared,
                                     uint32_t cluster_end) {
    uint32_t row = in.last_row; // the row that leaves contains the next tile's first byte
    uint32_t begin = work.offsets[row], end = work.offsets[row + 1], tile_end = in.start + in.length;
    if (begin < in.start || begin >= tile_end || end <= tile_end) return;
    bool ends_here = end <= cluster_end; // if true, no other cluster has a part of the row
    uint32_t *values = work.result + static_cast<uint64_t>(row) * work.hashes;
    for (uint32_t i = threadIdx.x; i < work.hashes; i += kMinhashThreads) {
        if (ends_here) {
            values[i] = shared->leaving[i];
        } else {
            atomicMin(&values[i], shared->leaving[i]);
        }
    }
}

// Writes the row that enters the cluster. Only block 0 calls it.
__device__ inline void write_entering(const MinhashWork &work, const TileInput &in, const ClusterShared *shared) {
    if (work.offsets[in.first_row] >= in.start) return;
    uint32_t *values = work.result + static_cast<uint64_t>(in.first_row) * work.hashes;
    for (uint32_t i = threadIdx.x; i < work.hashes; i += kMinhashThreads) atomicMin(&values[i], shared->entering[i]);
}

// A block whose number is work.tiles or more only completes the last cluster. Such a block has no tile, but participates in the
// barriers.
__device__ inline void cluster_block(const MinhashWork &work, ClusterShared *shared) {
    uint32_t tile = blockIdx.x, first_tile = tile - cluster_rank();
    for (uint32_t i = threadIdx.x; i < work.hashes; i += kMinhashThreads) {
        shared->leaving[i] = kNoMinimum, shared->entering[i] = kNoMinimum;
    }
    cluster_arrive();
    TileInput in = {};
    if (tile < work.tiles) {
        in = tile_input(work, tile);
        stage_bytes<MinhashTeam>(in, &shared->bytes);
        clear_rows<MinhashTeam>(&shared->state);
        __syncthreads();
        hash_tile<MinhashTeam>(in, &shared->bytes, &shared->state);
        __syncthreads();
    }
    cluster_wait(); // the minima of all blocks are initialized
    if (tile < work.tiles) {
        ClusterSink sink = {shared, first_tile, ResultSink{work.result, work.hashes}};
        sign_tile<MinhashTeam>(work, in, shared->bytes, &shared->state, sink);
    }
    cluster_arrive();
    cluster_wait(); // all blocks have merged their minima; from here on, a block reads only its own minima
    if (tile >= work.tiles) return;
    write_leaving(work, in, shared, min(work.bytes, (first_tile + kClusterBlocks) * kMinhashTileBytes));
    if (tile == first_tile) write_entering(work, in, shared);
}

// An SM's shared memory holds four blocks.
static __global__ void __launch_bounds__(kMinhashThreads, 4) minhash_cluster(MinhashWork work) {
#ifdef MILLRACE_HOPPER
    DYNAMIC_SHARED(ClusterShared, shared);
    cluster_block(work, shared);
#else
    __trap(); // devices without the capability never launch this kernel (minhash_variants.cuh)
#endif
}

} // namespace millrace
