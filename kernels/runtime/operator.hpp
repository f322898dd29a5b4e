// Code shared by the operators.
#pragma once

#include "../math/ragged.cuh"
#include "runtime.hpp"

namespace millrace {

// Returns an error for a shape that no batch can have. Batch is millrace_shape or millrace_launch.
template <class Batch>
int32_t check_shape(const Batch *batch, millrace_error *error) {
    if (batch->rows <= kMostInBatch && batch->bytes <= kMostInBatch && (batch->rows != 0 || batch->bytes == 0)) {
        return MILLRACE_OK;
    }
    return fail(error, MILLRACE_INVALID, 0, "a batch of %llu rows and %llu bytes: at most %llu of each, and no bytes without a row",
                static_cast<unsigned long long>(batch->rows), static_cast<unsigned long long>(batch->bytes),
                static_cast<unsigned long long>(kMostInBatch));
}

// Returns the number of blocks with `threads` threads each for `items` items, at most `most`. Kernels stride over the remaining items.
inline uint32_t blocks_for(uint64_t items, uint32_t threads, uint32_t most) {
    uint64_t blocks = (items + threads - 1) / threads;
    return blocks < most ? static_cast<uint32_t>(blocks) : most;
}

// Returns the number of multiprocessors of the current device.
inline int32_t multiprocessors(int32_t ordinal, uint32_t *count, millrace_error *error) {
    int value = 0;
    if (int32_t s = check(error, cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    *count = static_cast<uint32_t>(value);
    return MILLRACE_OK;
}

// Copies memory and waits for the copy. It uses a separate stream, so that it doesn't wait for other work.
int32_t copy_and_wait(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, millrace_error *error);

// Copies a table of constants to newly allocated device memory and waits for the copy.
int32_t upload(const void *table, size_t bytes, void **copy, millrace_error *error);

} // namespace millrace
