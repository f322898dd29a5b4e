// Barriers in shared memory, and bulk copies that complete on them. These are named functions for instructions
// of compute capability 9.0.
//
// An mbarrier is a 64-bit object in shared memory that passes through phases. A phase ends when the initialized number of threads
// have arrived and all expected bytes have been copied. A waiting thread identifies the phase by its parity: 0 for the first, 1
// for the second, 0 for the third. A wait for the parity of the phase before the first phase returns at once. In the first pass
// through a ring, all slots are therefore free.
//
// Arriving releases the thread's writes, and waiting acquires them. An mbarrier between a writer and a reader therefore orders
// their accesses to shared memory. On the host, tests define the same functions (test/hopper_on_host.hpp).
#pragma once

#include <stdint.h>

// Defined where these instructions can be used: in code for compute capability 9.0 or later, and on the host. For other devices,
// the kernels have empty bodies, and the host never launches them.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define MILLRACE_HOPPER 1
#endif

#ifdef __CUDACC__

namespace millrace {

__device__ inline uint32_t shared_address(const void *memory) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(memory));
}

// Initializes the barrier for the given number of arrivals per phase. One thread calls it. mbarrier_publish and __syncthreads must follow.
__device__ inline void mbarrier_init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes the barriers that this thread has initialized visible to the copy engine.
__device__ inline void mbarrier_publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void mbarrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and makes the phase also wait for `bytes` bytes of bulk copies.
__device__ inline void mbarrier_arrive_expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits until the phase with the given parity has ended. At each attempt, the hardware suspends the thread for a short time.
__device__ inline void mbarrier_wait(uint64_t *barrier, uint32_t parity) {
    uint32_t over;
    do {
        asm volatile("{ .reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!over);
}

// Starts a copy from global to shared memory that counts its bytes on the barrier. Both addresses and the number of
// bytes must be multiples of 16.
__device__ inline void bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// Orders this thread's own accesses to shared memory before bulk copies that start after a barrier.
__device__ inline void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Waits at a barrier for the given number of the block's threads, which must form whole warps. `barrier` is 1 to 15.
__device__ inline void team_barrier(uint32_t barrier, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

} // namespace millrace

#endif // __CUDACC__
