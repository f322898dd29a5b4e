// Functions of a warp for the kernels of quality. A mask has one bit for each of 32 consecutive bytes of text, which the
// warp's lanes hold in order.
#pragma once

#include <stdint.h>

#include "reduce.cuh"

namespace millrace {

constexpr uint32_t kWholeWarp = 0xffffffffu;

__device__ inline uint32_t lane_id() { return threadIdx.x % 32; }

__device__ inline uint32_t ballot(bool value) { return __ballot_sync(kWholeWarp, value); }

__device__ inline uint32_t shuffle(uint32_t value, uint32_t lane) { return __shfl_sync(kWholeWarp, value, static_cast<int>(lane)); }

__device__ inline uint32_t count_bits(uint32_t mask) { return static_cast<uint32_t>(__popc(static_cast<int>(mask))); }

// Return the index of the lowest and of the highest bit of a mask, which must not be 0.
__device__ inline uint32_t lowest_bit(uint32_t mask) { return static_cast<uint32_t>(__ffs(static_cast<int>(mask))) - 1; }
__device__ inline uint32_t highest_bit(uint32_t mask) { return 31 - static_cast<uint32_t>(__clz(static_cast<int>(mask))); }

// Returns the bits below an index, up to 31.
__device__ inline uint32_t bits_below(uint32_t index) { return (1u << index) - 1; }

// Returns the bits above the highest bit of a mask, or all bits if it is 0.
__device__ inline uint32_t bits_after(uint32_t mask) { return mask == 0 ? kWholeWarp : ~(kWholeWarp >> (31 - highest_bit(mask))); }

// Returns the value of the lane `distance` lanes earlier. The first lanes get the previous bytes' values from the last
// lanes.
__device__ inline uint32_t earlier(uint32_t value, uint32_t previous, uint32_t distance) {
    uint32_t lane = lane_id();
    return shuffle(lane >= 32 - distance ? previous : value, (lane - distance) % 32);
}

// Returns the value of the lane `distance` lanes later. The last lanes get the next bytes' values from the first lanes.
__device__ inline uint32_t later(uint32_t value, uint32_t next, uint32_t distance) {
    uint32_t lane = lane_id();
    return shuffle(lane < distance ? next : value, (lane + distance) % 32);
}

} // namespace millrace
