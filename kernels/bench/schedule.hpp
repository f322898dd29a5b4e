// Timing a schedule, and seeing to it that it moved the data.
#pragma once

#include <stdint.h>

#include <functional>

#include "input.hpp"
#include "slots.hpp"

namespace yardstick {

// Puts so many batches through the slots, batch i through slot i % slots from copy in to copy out, and returns when all
// of them are done.
using Schedule = std::function<void(uint64_t batches)>;

// Wall seconds a batch. Every slot gets fresh input. One batch runs first and its output is checked, then enough to
// warm up; then every trace of the last batch's slot but its input is wiped, all batches run on the clock, and the last
// one's output is checked. Throws Failure if one of the two is wrong.
double seconds_a_batch(const Slots &slots, const Input &input, uint64_t batches, const Schedule &run);

} // namespace yardstick
