// Teams: the threads that work on one record together. The code of an operator divides its work by lanes:
//
//     for (uint32_t i = team.lane(); i < record.size(); i += team.lanes()) ...
//
// On the CPU, every team has one lane, so the result must not depend on the number of lanes. The functions that combine the
// lanes' values accept only integers, because a sum of floating-point numbers depends on the order of its terms. All lanes must
// call these functions, and sync, the same number of times.
#pragma once

#include "millrace/platform.cuh"
#include "millrace/record.cuh"

namespace millrace {

template <class T>
struct IsInteger {
    static constexpr bool value = static_cast<T>(1) / 2 == 0;
};

// A team of one thread.
struct OneLane {
    static constexpr uint32_t kTeams = 1; // teams in a block
    static constexpr Reading kReading = Reading::in_order;

    MILLRACE_DEVICE uint32_t lane() const { return 0; }
    MILLRACE_DEVICE uint32_t lanes() const { return 1; }

    // Waits for all lanes, and makes the writes of each lane visible to all lanes.
    MILLRACE_DEVICE void sync() const {}

    // These functions return the sum, the minimum or the maximum of the lanes' values in every lane.
    template <class T>
    MILLRACE_DEVICE T sum(T value) const { return checked(value); }
    template <class T>
    MILLRACE_DEVICE T min(T value) const { return checked(value); }
    template <class T>
    MILLRACE_DEVICE T max(T value) const { return checked(value); }

    // Returns the sum of the values of the lanes before this lane.
    template <class T>
    MILLRACE_DEVICE T before(T value) const { return checked(value), T(); }

    // Returns the value of lane 0 in every lane.
    template <class T>
    MILLRACE_DEVICE T first(T value) const { return value; }

    MILLRACE_DEVICE bool any(bool value) const { return value; }
    MILLRACE_DEVICE bool all(bool value) const { return value; }

private:
    template <class T>
    static MILLRACE_DEVICE T checked(T value) {
        static_assert(IsInteger<T>::value, "teams combine only integers: a sum of floats depends on the number of lanes");
        return value;
    }
};

#ifdef MILLRACE_GPU

struct Sum {
    template <class T>
    static MILLRACE_DEVICE T of(T a, T b) { return a + b; }
};
struct Least {
    template <class T>
    static MILLRACE_DEVICE T of(T a, T b) { return b < a ? b : a; }
};
struct Most {
    template <class T>
    static MILLRACE_DEVICE T of(T a, T b) { return a < b ? b : a; }
};

constexpr uint32_t kAllLanes = 0xffffffffu;

// Combines the values of a warp's 32 threads, and returns the result in each thread.
template <class Combine, class T>
MILLRACE_DEVICE T combine_warp(T value) {
    static_assert(IsInteger<T>::value, "teams combine only integers: a sum of floats depends on the number of lanes");
    for (uint32_t distance = 16; distance > 0; distance /= 2) {
        value = Combine::of(value, static_cast<T>(__shfl_xor_sync(kAllLanes, value, distance)));
    }
    return value;
}

// Returns the sum of the values of the warp's threads up to and including this thread.
template <class T>
MILLRACE_DEVICE T sum_up_to(T value) {
    static_assert(IsInteger<T>::value, "teams combine only integers: a sum of floats depends on the number of lanes");
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        T other = static_cast<T>(__shfl_up_sync(kAllLanes, value, distance));
        if (threadIdx.x % 32 >= distance) value += other;
    }
    return value;
}

// One warp of a block with several warps.
template <uint32_t kWarps>
struct WarpTeam {
    static constexpr uint32_t kTeams = kWarps;
    static constexpr Reading kReading = Reading::anywhere;

    MILLRACE_DEVICE uint32_t lane() const { return threadIdx.x % 32; }
    MILLRACE_DEVICE uint32_t lanes() const { return 32; }
    MILLRACE_DEVICE void sync() const { __syncwarp(); }

    template <class T>
    MILLRACE_DEVICE T sum(T value) const { return combine_warp<Sum>(value); }
    template <class T>
    MILLRACE_DEVICE T min(T value) const { return combine_warp<Least>(value); }
    template <class T>
    MILLRACE_DEVICE T max(T value) const { return combine_warp<Most>(value); }
    template <class T>
    MILLRACE_DEVICE T before(T value) const { return sum_up_to(value) - value; }
    template <class T>
    MILLRACE_DEVICE T first(T value) const { return __shfl_sync(kAllLanes, value, 0); }

    MILLRACE_DEVICE bool any(bool value) const { return __any_sync(kAllLanes, value); }
    MILLRACE_DEVICE bool all(bool value) const { return __all_sync(kAllLanes, value); }
};

// All threads of a block. The block consists of whole warps.
template <uint32_t kThreads>
struct BlockTeam {
    static_assert(kThreads % 32 == 0 && kThreads >= 32 && kThreads <= 1024, "give a multiple of 32 threads, at most 1024");
    static constexpr uint32_t kTeams = 1, kWarps = kThreads / 32;
    static constexpr Reading kReading = Reading::anywhere;

    MILLRACE_DEVICE uint32_t lane() const { return threadIdx.x; }
    MILLRACE_DEVICE uint32_t lanes() const { return kThreads; }
    MILLRACE_DEVICE void sync() const { __syncthreads(); }

    template <class T>
    MILLRACE_DEVICE T sum(T value) const { return combine<Sum>(value); }
    template <class T>
    MILLRACE_DEVICE T min(T value) const { return combine<Least>(value); }
    template <class T>
    MILLRACE_DEVICE T max(T value) const { return combine<Most>(value); }

    template <class T>
    MILLRACE_DEVICE T before(T value) const {
        __shared__ T totals[kWarps];
        T upto = sum_up_to(value);
        if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = upto;
        __syncthreads();
        T earlier = T();
        for (uint32_t warp = 0; warp < threadIdx.x / 32; warp++) earlier += totals[warp];
        __syncthreads(); // the next call overwrites the totals
        return earlier + upto - value;
    }

    template <class T>
    MILLRACE_DEVICE T first(T value) const {
        __shared__ T shared;
        if (threadIdx.x == 0) shared = value;
        __syncthreads();
        T first = shared;
        __syncthreads();
        return first;
    }

    MILLRACE_DEVICE bool any(bool value) const { return __syncthreads_or(value); }
    MILLRACE_DEVICE bool all(bool value) const { return __syncthreads_and(value); }

private:
    template <class Combine, class T>
    static MILLRACE_DEVICE T combine(T value) {
        __shared__ T partial[kWarps];
        value = combine_warp<Combine>(value);
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
        __syncthreads();
        T all = partial[0];
        for (uint32_t warp = 1; warp < kWarps; warp++) all = Combine::of(all, partial[warp]);
        __syncthreads(); // the next call overwrites the partial results
        return all;
    }
};

#endif

} // namespace millrace
