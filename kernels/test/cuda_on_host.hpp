// Emulates the parts of CUDA that this project's kernels need to run on the host, for `make check`. Every thread of a
// block is a fiber. Blocks run one after another, or together if they form a cluster. At barriers and warp functions,
// a fiber yields until the other fibers have reached the same point. A barrier that not all threads reach ends the
// program.
//
// The emulator runs the kernels' own code, so the sanitizers detect mistakes in splitting and merging. The order of the threads
// between two barriers changes from turn to turn, which reveals some missing barriers. The emulator can't test for other races,
// for speed, or the few lines of PTX.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <functional>
#include <utility>
#include <vector>

#define MILLRACE_EMULATED
#define __device__
#define __global__ __attribute__((unused)) // not every test runs every kernel
#define __forceinline__ inline
#define __shared__ static // for kernels whose blocks run one at a time
#define DYNAMIC_SHARED(Type, name) Type *name = emulator::dynamic_shared<Type>()
#define __launch_bounds__(...)

struct uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
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

inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<uint32_t>(v)); }
inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64); }
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline uint32_t atomicOr(uint32_t *at, uint32_t v) { uint32_t old = *at; *at |= v; return old; }
inline uint32_t atomicAdd(uint32_t *at, uint32_t v) { uint32_t old = *at; *at += v; return old; }
inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long v) { unsigned long long old = *at; *at += v; return old; }
inline uint32_t atomicXor(uint32_t *at, uint32_t v) { uint32_t old = *at; *at ^= v; return old; }
inline uint32_t atomicMax(uint32_t *at, uint32_t v) { uint32_t old = *at; if (v > old) *at = v; return old; }
inline unsigned long long atomicCAS(unsigned long long *at, unsigned long long expected, unsigned long long v) {
    unsigned long long old = *at;
    if (old == expected) *at = v;
    return old;
}
inline uint32_t atomicCAS(uint32_t *at, uint32_t expected, uint32_t v) {
    uint32_t old = *at;
    if (old == expected) *at = v;
    return old;
}
inline uint32_t atomicMin(uint32_t *at, uint32_t v) { uint32_t old = *at; if (v < old) *at = v; return old; }

namespace emulator {

enum class State { running, at_block_barrier, at_warp_barrier, at_team_barrier, at_cluster_barrier, at_mbarrier, done };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    State state;
    uint32_t exchanged;
    std::function<bool()> awaited; // set at a team barrier or an mbarrier; returns whether the barrier has opened
};

inline std::vector<Fiber> fibers; // fibers of all blocks that run at once
inline uint32_t current;
inline uint32_t first_block, blocks_at_once;
inline ucontext_t scheduler;
inline std::function<void()> body;
inline std::vector<std::function<void()>> copies; // copies that have started but not finished

inline void give_way(State state) {
    Fiber &self = fibers[current];
    self.state = state;
    swapcontext(&self.context, &scheduler);
}

inline void wait_at(State barrier, std::function<bool()> opened) {
    fibers[current].awaited = std::move(opened);
    give_way(barrier);
}

inline void entry() {
    body();
    give_way(State::done);
}

// Resumes fibers [from, to) if all unfinished fibers among them are at the barrier.
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

// Resumes fibers [from, to) whose barrier has opened.
inline bool release_opened(uint32_t from, uint32_t to, State barrier) {
    bool any = false;
    for (uint32_t t = from; t < to; t++) {
        if (fibers[t].state != barrier || !fibers[t].awaited()) continue;
        fibers[t].state = State::running;
        any = true;
    }
    return any;
}

// Resumes one warp that waits for an mbarrier. In every other block, it resumes the first warp that can continue, and in the
// remaining blocks the last one. The warps at the other end therefore fall as far behind as the kernel permits.
inline bool release_warp(uint32_t count) {
    for (uint32_t i = 0; i < count; i += 32) {
        uint32_t from = first_block % 2 == 0 ? i : count - 32 - i;
        if (release_opened(from, from + 32, State::at_mbarrier)) return true;
    }
    return false;
}

// Finishes copies. It is called as late as possible, when no fiber can continue without them.
inline bool finish_copies() {
    bool any = !copies.empty();
    for (const std::function<void()> &copy : copies) copy();
    copies.clear();
    return any;
}

constexpr uint32_t kMostBlocksAtOnce = 8;
inline size_t shared_bytes; // distance between the dynamic shared memories of two blocks

template <class Type>
Type *dynamic_shared() {
    static Type blocks[kMostBlocksAtOnce];
    shared_bytes = sizeof(Type);
    return &blocks[current / blockDim.x];
}

inline void start(uint32_t count) {
    if (fibers.size() < count) fibers.resize(count);
    for (uint32_t t = 0; t < count; t++) {
        Fiber &f = fibers[t];
        if (f.stack.empty()) f.stack.resize(32 << 10);
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.data();
        f.context.uc_stack.ss_size = f.stack.size();
        f.context.uc_link = nullptr;
        f.state = State::running;
        makecontext(&f.context, entry, 0);
    }
}

// Runs every fiber until it yields, and returns the number of finished fibers. `turn` determines the order of the warps
// and of the threads in a warp.
inline uint32_t run_fibers(uint32_t count, uint32_t turn) {
    uint32_t done = 0, warps = count / 32;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t warp = (i / 32 + turn) % warps, lane = turn % 2 ? 31 - i % 32 : i % 32;
        current = warp * 32 + lane;
        threadIdx.x = current % blockDim.x, blockIdx.x = first_block + current / blockDim.x;
        if (fibers[current].state == State::running) swapcontext(&scheduler, &fibers[current].context);
        done += fibers[current].state == State::done;
    }
    return done;
}

// Runs blocks [first, first + count) at once.
inline void run_blocks(uint32_t first, uint32_t count) {
    uint32_t threads = blockDim.x, all = threads * count;
    first_block = first, blocks_at_once = count;
    start(all);
    for (uint32_t turn = 0; run_fibers(all, turn) < all; turn++) {
        bool moved = release(0, all, State::at_cluster_barrier);
        for (uint32_t b = 0; b < all; b += threads) moved |= release(b, b + threads, State::at_block_barrier);
        for (uint32_t w = 0; w < all; w += 32) moved |= release(w, w + 32, State::at_warp_barrier);
        moved |= release_opened(0, all, State::at_team_barrier);
        if (!moved) moved = release_warp(all) || finish_copies();
        if (!moved) {
            fprintf(stderr, "block %u: some threads wait for what the others do not do\n", first);
            abort();
        }
    }
    finish_copies();
}

// Distributes the value of every lane to all lanes, and returns the result of combine for the warp's 32 values.
template <class Combine>
uint32_t exchange(uint32_t value, Combine combine) {
    fibers[current].exchanged = value;
    give_way(State::at_warp_barrier);
    uint32_t result = combine(&fibers[current / 32 * 32]);
    give_way(State::at_warp_barrier);
    return result;
}

// Runs kernel<<<blocks, threads>>>(arguments...) with clusters of `size` blocks. `blocks` must be a multiple of
// `size`. Every other launch begins with the last cluster.
template <class Kernel, class... Arguments>
void launch_clusters(uint32_t size, uint32_t blocks, uint32_t threads, Kernel *kernel, Arguments... arguments) {
    blockDim.x = threads, gridDim.x = blocks;
    body = [=] { kernel(arguments...); };
    static bool backwards = false;
    backwards = !backwards;
    for (uint32_t b = 0; b < blocks; b += size) run_blocks(backwards ? blocks - size - b : b, size);
}

// Runs kernel<<<blocks, threads>>>(arguments...).
template <class Kernel, class... Arguments>
void launch(uint32_t blocks, uint32_t threads, Kernel *kernel, Arguments... arguments) {
    launch_clusters(1, blocks, threads, kernel, arguments...);
}

} // namespace emulator

inline void __syncthreads() { emulator::give_way(emulator::State::at_block_barrier); }
inline int __syncthreads_or(int value) {
    emulator::fibers[emulator::current].exchanged = value != 0;
    __syncthreads();
    uint32_t first = emulator::current / blockDim.x * blockDim.x;
    bool any = false;
    for (uint32_t t = first; t < first + blockDim.x; t++) any |= emulator::fibers[t].exchanged != 0;
    __syncthreads();
    return any;
}
inline void __syncwarp() { emulator::give_way(emulator::State::at_warp_barrier); }

inline uint32_t __shfl_up_sync(uint32_t, uint32_t value, uint32_t distance) {
    uint32_t lane = threadIdx.x % 32, from = lane >= distance ? lane - distance : lane;
    return emulator::exchange(value, [=](const emulator::Fiber *warp) { return warp[from].exchanged; });
}

inline uint32_t __shfl_sync(uint32_t, uint32_t value, int lane) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) { return warp[lane].exchanged; });
}

inline uint32_t __match_any_sync(uint32_t, uint32_t value) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) {
        uint32_t same = 0;
        for (uint32_t lane = 0; lane < 32; lane++) same |= static_cast<uint32_t>(warp[lane].exchanged == value) << lane;
        return same;
    });
}

inline uint32_t __ballot_sync(uint32_t, bool value) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) {
        uint32_t mask = 0;
        for (uint32_t lane = 0; lane < 32; lane++) mask |= warp[lane].exchanged << lane;
        return mask;
    });
}

inline uint32_t __reduce_add_sync(uint32_t, uint32_t value) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) {
        uint32_t sum = 0;
        for (uint32_t lane = 0; lane < 32; lane++) sum += warp[lane].exchanged;
        return sum;
    });
}

inline uint32_t __reduce_max_sync(uint32_t, uint32_t value) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) {
        uint32_t most = 0;
        for (uint32_t lane = 0; lane < 32; lane++) most = max(most, warp[lane].exchanged);
        return most;
    });
}

inline uint32_t __reduce_xor_sync(uint32_t mask, uint32_t value) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) {
        uint32_t sum = 0;
        for (uint32_t lane = 0; lane < 32; lane++) sum ^= mask >> lane & 1 ? warp[lane].exchanged : 0;
        return sum;
    });
}

inline uint32_t __reduce_min_sync(uint32_t, uint32_t value) {
    return emulator::exchange(value, [=](const emulator::Fiber *warp) {
        uint32_t least = warp[0].exchanged;
        for (uint32_t lane = 1; lane < 32; lane++) least = min(least, warp[lane].exchanged);
        return least;
    });
}

// The state that a persistent kernel shares with the host (system.cuh). The host runs when the kernel pauses.
namespace emulator {
inline std::function<void()> host_turn;
inline uint64_t clock; // nanoseconds
} // namespace emulator

inline uint64_t load_acquire_system(const uint64_t *word) { return *word; }
inline void store_release_system(uint64_t *word, uint64_t value) { *word = value; }
template <class T>
T load_mapped(const T *from) { return *from; }
inline void __threadfence_system() {}
inline uint64_t nanoseconds() { return emulator::clock; }
inline void pause_nanoseconds(uint32_t time) {
    emulator::clock += time;
    emulator::host_turn();
}
