// Marks functions that run on the GPU and on the host, so that `make check` can test them with a plain compiler.
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define MILLRACE_BOTH __host__ __device__ __forceinline__
#else
#define MILLRACE_BOTH inline
#endif

// Unrolls the loop that follows, on the GPU.
#ifdef __CUDA_ARCH__
#define UNROLL_PRAGMA(text) _Pragma(#text)
#define UNROLL(times) UNROLL_PRAGMA(unroll times)
#else
#define UNROLL(times)
#endif
