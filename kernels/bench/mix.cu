// Launches mix.
#include "mix.hpp"

#include "../mix_kernels.cuh"
#include "cuda.hpp"

namespace yardstick {

void launch_mix(cudaStream_t stream, const MixArgs &mix, uint32_t multiprocessors) {
    uint32_t bytes = static_cast<uint32_t>(mix.bytes), rounds = mix.rounds;
    const uint8_t *from = mix.from;
    uint8_t *to = mix.to, *last = mix.last;
    void *args[] = {&from, &bytes, &rounds, &to, &last};
    check(cudaLaunchKernel(reinterpret_cast<const void *>(millrace::mix_bytes),
                           dim3(millrace::mix_blocks(bytes, multiprocessors)), dim3(millrace::kMixThreads), args, 0,
                           stream),
          "cudaLaunchKernel mix_bytes");
}

} // namespace yardstick
