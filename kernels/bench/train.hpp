// Times work with the GPU's clock.
#pragma once

#include <stdint.h>

#include <functional>
#include <vector>

#include "cuda.hpp"

namespace yardstick {

// Work to enqueue on a stream.
using Work = std::function<void(cudaStream_t)>;

// Returns the number of copies or kernels that form a train. Each processes `bytes` bytes. A train processes 32 MiB in total, but
// has at least 8 and at most 512 pieces of work. The pieces follow each other directly, as in a full pipeline, so the gap before
// the first piece doesn't matter.
uint32_t train_of(uint64_t bytes);

// Returns the seconds per piece of work, measured with events. Each sample is the mean over a train. The first train
// only warms up.
std::vector<double> time_trains(cudaStream_t stream, uint32_t train, uint64_t repeats, const Work &work);

// Returns the median of the samples of time_trains.
double seconds_each(cudaStream_t stream, uint32_t train, uint64_t repeats, const Work &work);

} // namespace yardstick
