// The parts of CUDA that operators need, for compilers without CUDA. With a plain C++ compiler, device code is
// ordinary code. This file then defines the integer functions that CUDA has without an include.
#pragma once

#include "millrace/description.h"

// To run the code for a GPU on the CPU, tests define MILLRACE_GPU and their own CUDA functions.
#if defined(__CUDACC__) && !defined(MILLRACE_GPU)
#define MILLRACE_GPU
#endif

#ifdef MILLRACE_GPU

#define MILLRACE_DEVICE __device__ __forceinline__
#define MILLRACE_CONSTEXPR __host__ __device__ constexpr
#ifndef __CUDACC_RTC__
#include <string.h>
#endif

#else

#include <math.h>
#include <string.h>

#define MILLRACE_DEVICE inline
#define MILLRACE_CONSTEXPR constexpr
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__ static
#define __restrict__ __restrict

// Like CUDA's functions, these convert their arguments as an addition does.
template <class A, class B>
constexpr auto min(A a, B b) {
    using T = decltype(a + b);
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
constexpr auto max(A a, B b) {
    using T = decltype(a + b);
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline int __popcll(uint64_t v) { return __builtin_popcountll(v); }
inline int __clz(uint32_t v) { return v == 0 ? 32 : __builtin_clz(v); }
inline int __clzll(uint64_t v) { return v == 0 ? 64 : __builtin_clzll(v); }
inline int __ffs(uint32_t v) { return __builtin_ffs(static_cast<int>(v)); }
inline int __ffsll(uint64_t v) { return __builtin_ffsll(static_cast<long long>(v)); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

#endif
