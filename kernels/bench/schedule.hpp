// Times a schedule and checks that it moved the data.
#pragma once

#include <stdint.h>

#include <functional>

#include "input.hpp"
#include "slots.hpp"

namespace yardstick {

// Runs `batches` batches from copy in to copy out, with batch i in slot i % slots. Returns when all batches are done.
using Schedule = std::function<void(uint64_t batches)>;

// Returns the wall-clock seconds per batch. The function fills every slot with new input. First, one batch runs and its output is
// checked. More batches then warm up the GPU. Next, the buffers of the last batch's slot are cleared, except its input. Finally,
// the timed batches run, and the output of the last batch is checked. Throws Failure if one of the two outputs is wrong.
double seconds_a_batch(const Slots &slots, const Input &input, uint64_t batches, const Schedule &run);

} // namespace yardstick
