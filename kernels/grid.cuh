// Kernels whose blocks can all wait for each other. They must be launched with cudaLaunchCooperativeKernel. On the host,
// tests define the same function (test/hopper_on_host.hpp).
#pragma once

#ifdef __CUDACC__

#include <cooperative_groups.h>

namespace millrace {

// Waits until every thread of the grid has called it. A thread then sees everything that the others wrote before.
__device__ inline void grid_wait() { cooperative_groups::this_grid().sync(); }

} // namespace millrace

#endif // __CUDACC__
