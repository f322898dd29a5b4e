// Communication between a running kernel and the host: loads and stores that are visible to both, and time.
//
// `make check` has its own versions of these functions (test/cuda_on_host.hpp).
#pragma once

#include <stdint.h>

namespace millrace {

#ifdef __CUDACC__

// Loads a word. The thread then sees all writes of the host before its release store of this word.
__device__ inline uint64_t load_acquire_system(const uint64_t *word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

// Stores a word. A host that has loaded it sees everything that this thread wrote or observed before.
__device__ inline void store_release_system(uint64_t *word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Loads host memory without using a cache, because the host writes to the same addresses repeatedly.
__device__ inline uint32_t load_mapped(const uint32_t *from) { return __ldcv(from); }
__device__ inline uint4 load_mapped(const uint4 *from) { return __ldcv(from); }

// Returns the GPU's clock in nanoseconds. Its resolution may be as coarse as a microsecond.
__device__ inline uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ inline void pause_nanoseconds(uint32_t time) { __nanosleep(time); }

#endif

} // namespace millrace
