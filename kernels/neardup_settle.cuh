// Settles the labels of records that depend on other records of the same batch.
//
// A record's label is the least `known` position among itself and the records that it depends on, directly or indirectly. In each
// round, every waiting record takes the least position that one of these records has reached. When a round changes nothing, all labels
// are right, in whatever order the threads ran. A record stores the number of the record whose position it takes, because threads can
// write a number atomically.
//
// In a long chain, these rounds alone would need one round per record. Two shortcuts reduce the number of rounds to a few more
// than log2 of the length:
//
//   - A pointer to the nearest record that it depends on doubles its reach in each round. When it has reached the end, it
//     starts again, because the records that it passed may have improved since.
//   - A record also follows the winner of its winner.
#pragma once

#include "grid.cuh"
#include "neardup_step.cuh"

namespace millrace {

#if defined(__CUDACC__) || defined(MILLRACE_EMULATED)

// Improves a record, and returns whether it changed. Other threads change `winner` and `pointer` at the same time.
__device__ inline bool neardup_improve(const NeardupStep &s, uint32_t record, bool restart) {
    volatile uint32_t *winner = s.winner, *pointer = s.pointer;
    uint32_t was = winner[record], best = was;
    NeardupPosition least = s.known[best];
    auto offer = [&](uint32_t other) {
        uint32_t candidate = winner[other];
        if (candidate == best) return;
        NeardupPosition position = s.known[candidate];
        if (position < least) best = candidate, least = position;
    };
    uint32_t count = s.edge_count[record];
    for (uint32_t e = 0; e < count; e++) offer(s.edges[record * s.bands + e]);
    uint32_t near = restart ? s.nearest[record] : pointer[record];
    offer(near);
    offer(best);
    pointer[record] = pointer[near];
    if (best == was) return false;
    winner[record] = best;
    return true;
}

// Improves the waiting records `first`, first + step, ... and returns whether one changed.
__device__ inline bool neardup_round(const NeardupStep &s, uint32_t waiting, uint32_t first, uint32_t step, bool restart) {
    bool changed = false;
    for (uint32_t w = first; w < waiting; w += step) changed |= neardup_improve(s, s.waiting[w], restart);
    return changed;
}

// Settles with all blocks. The result doesn't depend on their number.
__device__ inline void neardup_settle_together(const NeardupStep &s, uint32_t waiting, uint32_t period) {
    volatile uint32_t *changed = s.counters->changed;
    uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t round = 0;; round++) {
        if (neardup_round(s, waiting, first, gridDim.x * blockDim.x, round % period == 0)) changed[round % 3] = 1;
        if (first == 0) changed[(round + 1) % 3] = 0; // all threads have read the previous value, which belonged to round - 2
        grid_wait();
        if (changed[round % 3] == 0) return;
    }
}

static __global__ void __launch_bounds__(kNeardupBlock) neardup_settle(NeardupStep s) {
    uint32_t waiting = s.counters->waiting;
    uint32_t period = 32 - static_cast<uint32_t>(__clz(static_cast<int>(s.records))) + 3; // log2 of the records, and a few more
    if (waiting > s.one_block) return neardup_settle_together(s, waiting, period);
    if (blockIdx.x != 0) return;
    for (uint32_t round = 0; waiting != 0; round++) {
        bool changed = neardup_round(s, waiting, threadIdx.x, blockDim.x, round % period == 0);
        if (!__syncthreads_or(changed)) return;
    }
}

#endif

} // namespace millrace
