// Runs an operator's code for a GPU on the CPU, with the fibers of cuda_on_host.hpp. Every lane of a warp or block is a
// fiber. The file is compiled with -DOPERATOR='"NAME.cu"'. It exports the same two symbols as an operator's library for
// the CPU, so that one test checks both.
#pragma once

#define MILLRACE_GPU
#define __host__
#define __constant__ static
#define __grid_constant__
#define __ldg(address) (*(address))

#include <string.h>

#include "../cuda_on_host.hpp"

// Replaces an atomic change. Blocks run one at a time, and fibers yield only at barriers.
template <class T>
T change(T *at, T to) {
    T old = *at;
    *at = to;
    return old;
}
inline unsigned long long atomicOr(unsigned long long *at, unsigned long long v) { return change(at, *at | v); }
template <class T>
T atomicMin(T *at, T v) { return change(at, v < *at ? v : *at); }
template <class T>
T atomicMax(T *at, T v) { return change(at, v > *at ? v : *at); }
template <class T>
T atomicExch(T *at, T v) { return change(at, v); }

inline int __clz(uint32_t v) { return v == 0 ? 32 : __builtin_clz(v); }

// Returns the value of another lane of the warp.
template <class T, class From>
T shuffle(T value, From from) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    auto half = [&](uint32_t part) {
        return emulator::exchange(part, [=](const emulator::Fiber *warp) { return warp[from(threadIdx.x % 32)].exchanged; });
    };
    uint32_t low = half(static_cast<uint32_t>(bits)), high = half(static_cast<uint32_t>(bits >> 32));
    bits = static_cast<uint64_t>(high) << 32 | low;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
T __shfl_xor_sync(uint32_t, T value, uint32_t distance) {
    return shuffle(value, [=](uint32_t lane) { return lane ^ distance; });
}
template <class T>
T __shfl_up_sync(uint32_t, T value, uint32_t distance) {
    return shuffle(value, [=](uint32_t lane) { return lane >= distance ? lane - distance : lane; });
}
template <class T>
T __shfl_sync(uint32_t, T value, uint32_t from) {
    return shuffle(value, [=](uint32_t) { return from; });
}

inline int __any_sync(uint32_t, bool value) {
    return emulator::exchange(value, [](const emulator::Fiber *warp) {
        uint32_t any = 0;
        for (uint32_t lane = 0; lane < 32; lane++) any |= warp[lane].exchanged;
        return any;
    });
}
inline int __all_sync(uint32_t mask, bool value) { return !__any_sync(mask, !value); }

inline int __syncthreads_or(bool value) {
    static bool any;
    if (threadIdx.x == 0) any = false;
    __syncthreads();
    any = any || value;
    __syncthreads();
    bool result = any;
    __syncthreads();
    return result;
}
inline int __syncthreads_and(bool value) { return !__syncthreads_or(!value); }

#define millrace_operator_run millrace_operator_kernel
#include OPERATOR
#undef millrace_operator_run

// Runs a kernel as a GPU would.
template <class Block>
void run_kernel(uint32_t blocks, uint32_t threads, void (*kernel)(millrace_batch, Block), const millrace_batch &batch, const void *block) {
    Block parameters = {};
    memcpy(parameters.bytes, block, millrace_operator_description.head.parameter_bytes);
    emulator::launch(blocks, threads, kernel, batch, parameters);
}

// Computes records `first` to `end` - 1, with fewer blocks than records, so that blocks process several records.
extern "C" void millrace_operator_run(const millrace_batch *batch, const void *block, uint32_t first, uint32_t end) {
    if (first != 0 || end != batch->rows) abort(); // the positions of byte strings depend on the whole batch
    run_kernel(3, millrace_operator_description.head.threads, millrace_operator_kernel, *batch, block);
}

// Runs all blocks of a pass. `kernel` is the library's symbol for the pass.
template <class Block>
void run_pass(void (*)(millrace_batch, Block), void *kernel, uint32_t blocks, uint32_t threads, const millrace_batch &batch, const void *block) {
    run_kernel(blocks, threads, reinterpret_cast<void (*)(millrace_batch, Block)>(kernel), batch, block);
}
extern "C" void millrace_run_pass_in_lanes(void *kernel, const millrace_batch *batch, const void *block, uint32_t blocks, uint32_t threads) {
    run_pass(millrace_operator_kernel, kernel, blocks, threads, *batch, block);
}
