// Replaces NVTX in the fake library, which ignores ranges.
#pragma once
#include <stdint.h>

inline uint64_t nvtxRangeStartA(const char *) { return 1; }
inline void nvtxRangeEnd(uint64_t) {}
