// Launches mix, the kernel of every schedule in this folder.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

namespace yardstick {

// Mixes `bytes` bytes from `from` into `to`, both in device memory. `last` is the address of an additional byte to
// write, or NULL.
struct MixArgs {
    const uint8_t *from;
    uint8_t *to;
    uint64_t bytes; // a multiple of 4
    uint32_t rounds;
    uint8_t *last;
};

// Enqueues one launch. `multiprocessors` is the GPU's number of multiprocessors.
void launch_mix(cudaStream_t stream, const MixArgs &args, uint32_t multiprocessors);

} // namespace yardstick
