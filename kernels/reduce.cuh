// Combines the values of a warp's lanes.
#pragma once

#include <stdint.h>

namespace millrace {

// Returns the XOR of `value` over the lanes in `mask`, on GPUs without an instruction for this reduction. All lanes of the warp
// call it, each with the mask of its own group.
__device__ inline uint32_t reduce_xor_by_shuffles(uint32_t mask, uint32_t value) {
    uint32_t sum = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t other = __shfl_sync(0xffffffffu, value, static_cast<int>(lane));
        sum ^= mask >> lane & 1 ? other : 0;
    }
    return sum;
}

// Returns the same value. From compute capability 8.0 on, it uses one instruction.
__device__ inline uint32_t reduce_xor(uint32_t mask, uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    return reduce_xor_by_shuffles(mask, value);
#else
    return __reduce_xor_sync(mask, value);
#endif
}

// Returns the minimum of `value` over the warp, on GPUs without an instruction for this reduction. All lanes call it.
__device__ inline uint32_t reduce_min_by_shuffles(uint32_t value) {
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_sync(0xffffffffu, value, static_cast<int>(threadIdx.x % 32 ^ distance));
        value = min(value, other);
    }
    return value;
}

// Returns the same value. From compute capability 8.0 on, it uses one instruction.
__device__ inline uint32_t reduce_min(uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    return reduce_min_by_shuffles(value);
#else
    return __reduce_min_sync(0xffffffffu, value);
#endif
}

// Returns the sum of `value` over all lanes.
__device__ inline uint32_t reduce_add(uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
#else
    return __reduce_add_sync(0xffffffffu, value);
#endif
}

// Returns the maximum of `value` over all lanes.
__device__ inline uint32_t reduce_max(uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    for (int distance = 16; distance > 0; distance /= 2) value = max(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
#else
    return __reduce_max_sync(0xffffffffu, value);
#endif
}

} // namespace millrace
