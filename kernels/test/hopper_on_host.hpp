// The functions of mbarrier.cuh, cluster.cuh and grid.cuh on the host (cuda_on_host.hpp).
//
// The emulation ends the program at faults that the hardware wouldn't report: too many arrivals in a phase, or a misaligned bulk
// copy. It performs a bulk copy as late as possible, so that code that doesn't wait for the copy reads old bytes.
#pragma once

#include <string.h>

#include "cuda_on_host.hpp"

namespace millrace {

// The contents of an mbarrier's 64 bits in this emulation.
struct MbarrierBits {
    uint16_t arrivals, pending; // arrivals per phase; arrivals still missing
    uint32_t bytes : 31;        // bytes still missing
    uint32_t phase : 1;
};
static_assert(sizeof(MbarrierBits) == sizeof(uint64_t), "an mbarrier is 64 bits");

inline void emulated(bool right, const char *what) {
    if (right) return;
    fprintf(stderr, "block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
    abort();
}

// Changes a barrier, and ends its phase if nothing is missing.
template <class Change>
void mbarrier_change(uint64_t *barrier, Change change) {
    MbarrierBits bits;
    memcpy(&bits, barrier, sizeof bits);
    change(bits);
    if (bits.pending == 0 && bits.bytes == 0) {
        bits.pending = bits.arrivals;
        bits.phase ^= 1;
    }
    memcpy(barrier, &bits, sizeof bits);
}

inline void mbarrier_init(uint64_t *barrier, uint32_t arrivals) {
    MbarrierBits bits = {static_cast<uint16_t>(arrivals), static_cast<uint16_t>(arrivals), 0, 0};
    memcpy(barrier, &bits, sizeof bits);
}

inline void mbarrier_publish() {}
inline void bulk_fence() {}

inline void mbarrier_arrive_expect(uint64_t *barrier, uint32_t bytes) {
    mbarrier_change(barrier, [=](MbarrierBits &bits) {
        emulated(bits.pending != 0, "an arrival more than the mbarrier was made for");
        bits.pending--;
        bits.bytes += bytes;
    });
}

inline void mbarrier_arrive(uint64_t *barrier) { mbarrier_arrive_expect(barrier, 0); }

inline void mbarrier_wait(uint64_t *barrier, uint32_t parity) {
    emulator::wait_at(emulator::State::at_mbarrier, [=] {
        MbarrierBits bits;
        memcpy(&bits, barrier, sizeof bits);
        return bits.phase != parity;
    });
}

inline void bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *barrier) {
    uint64_t all = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes;
    emulated(all % 16 == 0 && bytes != 0, "a bulk copy that is not in units of 16 bytes");
    emulator::copies.push_back([=] {
        memcpy(to, from, bytes);
        mbarrier_change(barrier, [=](MbarrierBits &bits) {
            emulated(bits.bytes >= bytes, "more bytes than the mbarrier was told to expect");
            bits.bytes -= bytes;
        });
    });
}

// Implements the barriers of teams. It counts the waiting threads and the openings of each barrier. When a block ends, no threads
// wait.
inline void team_barrier(uint32_t barrier, uint32_t threads) {
    static struct { uint32_t standing, opened; } all[16];
    auto &mine = all[barrier];
    emulated(emulator::blocks_at_once == 1, "teams are emulated for one block at a time");
    uint32_t turn = mine.opened;
    if (++mine.standing == threads) {
        mine.standing = 0;
        mine.opened++;
    }
    emulator::wait_at(emulator::State::at_team_barrier, [=, &mine] { return mine.opened != turn; });
}

inline uint32_t cluster_rank() { return blockIdx.x - emulator::first_block; }

// The two halves of the cluster barrier. The threads of a cluster yield when they wait, which is always after
// their arrival.
inline void cluster_arrive() {}
inline void cluster_wait() { emulator::give_way(emulator::State::at_cluster_barrier); }

// The barrier of grid.cuh. The test launches all blocks as one cluster.
inline void grid_wait() { emulator::give_way(emulator::State::at_cluster_barrier); }

template <class Type>
Type *cluster_peer(Type *mine, uint32_t rank) {
    int64_t blocks = static_cast<int64_t>(rank) - cluster_rank();
    return reinterpret_cast<Type *>(reinterpret_cast<char *>(mine) + blocks * static_cast<int64_t>(emulator::shared_bytes));
}

} // namespace millrace
