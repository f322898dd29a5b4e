// Functions of a warp for the kernels of quality. A mask has one bit for each of 32 consecutive bytes of text, which the
// warp's lanes hold.
//
// In the scan, the lanes hold the bytes in reverse order, so a mask's highest bit is the first byte. The bytes after a mask's
// last byte are the bits below its lowest bit, which two instructions compute. Elsewhere, lane 0 holds the first byte.
#pragma once

#include <stdint.h>

#include "reduce.cuh"

namespace millrace {

constexpr uint32_t kWholeWarp = 0xffffffffu;

__device__ inline uint32_t lane_id() { return threadIdx.x % 32; }

__device__ inline uint32_t ballot(bool value) { return __ballot_sync(kWholeWarp, value); }

__device__ inline uint32_t shuffle(uint32_t value, uint32_t lane) { return __shfl_sync(kWholeWarp, value, static_cast<int>(lane)); }

__device__ inline uint32_t count_bits(uint32_t mask) { return static_cast<uint32_t>(__popc(static_cast<int>(mask))); }

// Returns the index of the lowest bit of a mask, which must not be 0.
__device__ inline uint32_t lowest_bit(uint32_t mask) { return static_cast<uint32_t>(__ffs(static_cast<int>(mask))) - 1; }

// Returns the bits below an index, up to 31.
__device__ inline uint32_t bits_below(uint32_t index) { return (1u << index) - 1; }

// The functions below are for the scan.

constexpr uint32_t kFirstByte = 1u << 31;

// Returns the number of this lane's byte among the 32 bytes.
__device__ inline uint32_t place() { return 31 - lane_id(); }

// Returns the number of the first and of the last byte of a mask, which must not be 0.
__device__ inline uint32_t first_place(uint32_t mask) { return static_cast<uint32_t>(__clz(static_cast<int>(mask))); }
__device__ inline uint32_t last_place(uint32_t mask) { return 32 - static_cast<uint32_t>(__ffs(static_cast<int>(mask))); }

// Returns the bytes before this lane's byte.
__device__ inline uint32_t bytes_before() { return 0xfffffffeu << lane_id(); }

// Returns the bytes after the last byte of a mask, or all bytes if it is 0.
__device__ inline uint32_t bytes_after(uint32_t mask) { return (mask - 1) & ~mask; }

// Returns the value for the byte `distance` bytes earlier. `previous` is the value for this lane's byte of the previous 32
// bytes.
__device__ inline uint32_t earlier(uint32_t value, uint32_t previous, uint32_t distance) {
    uint32_t lane = lane_id();
    return shuffle(lane < distance ? previous : value, (lane + distance) % 32);
}

// Returns the value for the byte `distance` bytes later. `next` is the value for this lane's byte of the next 32 bytes.
__device__ inline uint32_t later(uint32_t value, uint32_t next, uint32_t distance) {
    uint32_t lane = lane_id();
    return shuffle(lane >= 32 - distance ? next : value, (lane - distance) % 32);
}

} // namespace millrace
