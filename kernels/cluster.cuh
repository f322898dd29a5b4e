// Thread block clusters: blocks that run at the same time on neighbouring multiprocessors, can wait for each other, and
// reach each other's shared memory. Compute capability 9.0. On the host, tests define the same functions
// (test/hopper_on_host.hpp).
#pragma once

#include "mbarrier.cuh" // MILLRACE_HOPPER

#ifdef __CUDACC__

namespace millrace {

// This block's number in its cluster.
__device__ inline uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// The cluster's barrier in two halves. What a thread wrote before it arrived, in its own shared memory or in another
// block's, is seen by every thread of the cluster that has waited. No thread may leave before the last access of
// another block to its shared memory: the kernel ends with a barrier, or with accesses of its own alone.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Where the block of that rank keeps what this block keeps at `mine`.
template <class Type>
__device__ inline Type *cluster_peer(Type *mine, uint32_t rank) {
    uint64_t theirs;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
    return reinterpret_cast<Type *>(theirs);
}

} // namespace millrace

#endif // __CUDACC__
