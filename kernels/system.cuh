// What a kernel says to the host while it runs, and hears from it: loads and stores that both see, and time.
//
// `make check` has its own versions of these (test/cuda_on_host.hpp).
#pragma once

#include <stdint.h>

namespace millrace {

#ifdef __CUDACC__

// What the host wrote before its release store of this word is seen by loads after this one.
__device__ inline uint64_t load_acquire_system(const uint64_t *word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

// What this thread wrote before, and what it saw others write, is seen by the host once it has loaded this word.
__device__ inline void store_release_system(uint64_t *word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Loads of host memory that never come from a cache: the host writes to the same places again and again.
__device__ inline uint32_t load_mapped(const uint32_t *from) { return __ldcv(from); }
__device__ inline uint4 load_mapped(const uint4 *from) { return __ldcv(from); }

// The GPU's clock in nanoseconds. Its steps may be as long as a microsecond.
__device__ inline uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ inline void pause_nanoseconds(uint32_t time) { __nanosleep(time); }

#endif

} // namespace millrace
