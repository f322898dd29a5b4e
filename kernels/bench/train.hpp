// Timing work by the GPU's own clock.
#pragma once

#include <stdint.h>

#include <functional>
#include <vector>

#include "cuda.hpp"

namespace yardstick {

// Work that a stream is given.
using Work = std::function<void(cudaStream_t)>;

// How many copies or kernels over `bytes` bytes make a train: 32 MiB in all, but 8 to 512 of them. In a train one
// stands right behind the other, as they do in a full pipeline, so that the gap before the first does not count.
uint32_t train_of(uint64_t bytes);

// Seconds of one piece of work, each sample the mean of a train of them, by events. It warms up first.
std::vector<double> time_trains(cudaStream_t stream, uint32_t train, uint64_t repeats, const Work &work);

// The median of the same.
double seconds_each(cudaStream_t stream, uint32_t train, uint64_t repeats, const Work &work);

} // namespace yardstick
