// Just enough of CUDA to run this project's kernels on the host, for `make check`: every thread of a block is a
// fiber, blocks run one after another, and barriers and warp functions are points where a fiber gives way until the
// others have come there. A barrier that not all threads reach ends the program.
//
// It runs the kernels' own code, so mistakes in cutting and combining show up here under the sanitizers. It says
// nothing of races, of speed, or of the few lines of PTX.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <functional>
#include <vector>

#define __device__
#define __global__
#define __shared__ static // one block runs at a time
#define __launch_bounds__(...)

struct uint4 {
    uint32_t x, y, z, w;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

struct Index {
    uint32_t x;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

template <class T>
T min(T a, T b) { return a < b ? a : b; }
template <class T>
T max(T a, T b) { return a > b ? a : b; }

template <class T>
T __ldg(const T *address) { return *address; }
inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline uint32_t atomicOr(uint32_t *at, uint32_t v) { uint32_t old = *at; *at |= v; return old; }
inline uint32_t atomicXor(uint32_t *at, uint32_t v) { uint32_t old = *at; *at ^= v; return old; }
inline uint32_t atomicMin(uint32_t *at, uint32_t v) { uint32_t old = *at; if (v < old) *at = v; return old; }

namespace emulator {

enum class State { running, at_block_barrier, at_warp_barrier, done };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    State state;
    uint32_t exchanged;
};

inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline std::function<void()> body;

inline void give_way(State state) {
    Fiber &self = fibers[threadIdx.x];
    self.state = state;
    swapcontext(&self.context, &scheduler);
}

inline void entry() {
    body();
    give_way(State::done);
}

// Lets threads [from, to) go on if all that are left stand at the barrier.
inline bool release(uint32_t from, uint32_t to, State barrier) {
    bool any = false;
    for (uint32_t t = from; t < to; t++) {
        if (fibers[t].state != barrier && fibers[t].state != State::done) return false;
        any = any || fibers[t].state == barrier;
    }
    for (uint32_t t = from; t < to; t++) {
        if (fibers[t].state == barrier) fibers[t].state = State::running;
    }
    return any;
}

inline void start(uint32_t threads) {
    if (fibers.size() < threads) fibers.resize(threads);
    for (uint32_t t = 0; t < threads; t++) {
        Fiber &f = fibers[t];
        if (f.stack.empty()) f.stack.resize(128 << 10);
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.data();
        f.context.uc_stack.ss_size = f.stack.size();
        f.context.uc_link = nullptr;
        f.state = State::running;
        makecontext(&f.context, entry, 0);
    }
}

inline void run_block(uint32_t threads) {
    start(threads);
    for (;;) {
        uint32_t done = 0;
        for (uint32_t t = 0; t < threads; t++) {
            threadIdx.x = t;
            if (fibers[t].state == State::running) swapcontext(&scheduler, &fibers[t].context);
            done += fibers[t].state == State::done;
        }
        if (done == threads) return;
        bool moved = release(0, threads, State::at_block_barrier);
        for (uint32_t w = 0; w < threads; w += 32) moved |= release(w, min(w + 32, threads), State::at_warp_barrier);
        if (!moved) {
            fprintf(stderr, "block %u: some threads wait at a barrier that the others do not come to\n", blockIdx.x);
            abort();
        }
    }
}

// Gives every lane's value to every lane, and returns what combine makes of the warp's 32 values.
template <class Combine>
uint32_t exchange(uint32_t value, Combine combine) {
    fibers[threadIdx.x].exchanged = value;
    give_way(State::at_warp_barrier);
    uint32_t result = combine(&fibers[threadIdx.x / 32 * 32]);
    give_way(State::at_warp_barrier);
    return result;
}

// kernel<<<blocks, threads>>>(arguments...)
template <class Kernel, class... Arguments>
void launch(uint32_t blocks, uint32_t threads, Kernel *kernel, Arguments... arguments) {
    blockDim.x = threads, gridDim.x = blocks;
    body = [=] { kernel(arguments...); };
    for (uint32_t b = 0; b < blocks; b++) {
        blockIdx.x = b;
        run_block(threads);
    }
}

} // namespace emulator

inline void __syncthreads() { emulator::give_way(emulator::State::at_block_barrier); }
inline void __syncwarp() { emulator::give_way(emulator::State::at_warp_barrier); }

inline uint32_t __shfl_up_sync(uint32_t, uint32_t value, uint32_t distance) {
    uint32_t lane = threadIdx.x % 32, from = lane >= distance ? lane - distance : lane;
    return emulator::exchange(value, [=](const emulator::Fiber *warp) { return warp[from].exchanged; });
}

inline uint32_t __match_any_sync(uint32_t, uint32_t value) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) {
        uint32_t same = 0;
        for (uint32_t lane = 0; lane < 32; lane++) same |= static_cast<uint32_t>(warp[lane].exchanged == value) << lane;
        return same;
    });
}

inline uint32_t __reduce_xor_sync(uint32_t mask, uint32_t value) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) {
        uint32_t sum = 0;
        for (uint32_t lane = 0; lane < 32; lane++) sum ^= mask >> lane & 1 ? warp[lane].exchanged : 0;
        return sum;
    });
}
