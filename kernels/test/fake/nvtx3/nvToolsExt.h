// Stands in for NVTX in the fake library: nobody looks at its ranges.
#pragma once
#include <stdint.h>

inline uint64_t nvtxRangeStartA(const char *) { return 1; }
inline void nvtxRangeEnd(uint64_t) {}
