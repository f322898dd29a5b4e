// Thread block clusters: blocks that run at the same time on neighboring multiprocessors. They can wait for each other and access
// each other's shared memory. Clusters need compute capability 9.0. On the host, tests define the same functions
// (test/hopper_on_host.hpp).
#pragma once

#include "mbarrier.cuh" // MILLRACE_HOPPER

#ifdef __CUDACC__

namespace millrace {

// Returns this block's number in its cluster.
__device__ inline uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// The two halves of the cluster's barrier. After the wait, a thread sees all writes to shared memory that other threads of the
// cluster made before they arrived. No block may exit before another block's last access to its shared memory. After its last
// barrier, a kernel may therefore access only its own shared memory.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Returns the address in block `rank` of the cluster that corresponds to `mine` in this block.
template <class Type>
__device__ inline Type *cluster_peer(Type *mine, uint32_t rank) {
    uint64_t theirs;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
    return reinterpret_cast<Type *>(theirs);
}

} // namespace millrace

#endif // __CUDACC__
