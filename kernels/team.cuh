// Teams: threads of a block that perform a task together. A team is the whole block, or the warps of the block with one
// role.
#pragma once

#include <stdint.h>

#include "mbarrier.cuh"

namespace millrace {

// All threads of the block.
template <uint32_t kBlockThreads>
struct BlockTeam {
    static constexpr uint32_t kThreads = kBlockThreads;
    static __device__ uint32_t rank() { return threadIdx.x; }
    static __device__ void sync() { __syncthreads(); }
};

// A team of kTeamThreads threads of the block, in whole warps. Its first thread is kFirst. Each team of a kernel has its own
// hardware barrier, kBarrier, from 1 to 15. __syncthreads uses barrier 0.
template <uint32_t kFirst, uint32_t kTeamThreads, uint32_t kBarrier>
struct WarpTeam {
    static_assert(kFirst % 32 == 0 && kTeamThreads % 32 == 0 && kBarrier > 0 && kBarrier < 16, "whole warps, own barrier");
    static constexpr uint32_t kThreads = kTeamThreads;
    static __device__ uint32_t rank() { return threadIdx.x - kFirst; }
    static __device__ void sync() { team_barrier(kBarrier, kTeamThreads); }
};

} // namespace millrace

// Declares `name`, a pointer to the block's dynamic shared memory, which has at least sizeof(Type) bytes. On the host,
// tests define this macro.
#ifdef __CUDACC__
#define DYNAMIC_SHARED(Type, name)                                     \
    extern __shared__ __align__(16) unsigned char name##_memory_[];    \
    Type *name = reinterpret_cast<Type *>(name##_memory_)
#endif
