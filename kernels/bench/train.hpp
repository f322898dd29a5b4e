// Times work with the GPU's clock.
#pragma once

#include <stdint.h>

#include <functional>
#include <vector>

#include "cuda.hpp"

namespace yardstick {

// Work to enqueue on a stream.
using Work = std::function<void(cudaStream_t)>;

// Returns how many copies or kernels over `bytes` bytes form a train: 32 MiB in total, but at least 8 and at most 512.
// In a train they follow each other directly, as in a full pipeline, so that the gap before the first one doesn't
// matter.
uint32_t train_of(uint64_t bytes);

// Returns the seconds per piece of work, measured with events. Each sample is the mean over a train. It warms up first.
std::vector<double> time_trains(cudaStream_t stream, uint32_t train, uint64_t repeats, const Work &work);

// Returns the median of these samples.
double seconds_each(cudaStream_t stream, uint32_t train, uint64_t repeats, const Work &work);

} // namespace yardstick
