// Times a schedule and checks that it moved the data.
#include "schedule.hpp"

#include <string.h>

#include "clock.hpp"

namespace yardstick {

namespace {

void wipe(const Slot &slot) {
    memset(slot.out.get(), 0, slot.bytes);
    check(cudaMemset(slot.device_in.get(), 0, slot.bytes), "cudaMemset");
    check(cudaMemset(slot.device_out.get(), 0, slot.bytes), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

} // namespace

double seconds_a_batch(const Slots &slots, const Input &input, uint64_t batches, const Schedule &run) {
    for (uint64_t i = 0; i < slots.size(); i++) input.fill(slots[i].in.get(), slots[i].bytes, i);
    run(1);
    input.check(slots[0].out.get(), slots[0].bytes, 0, "the first batch");
    run(slots.size() * 3);

    uint64_t last = (batches - 1) % slots.size();
    wipe(slots[last]);
    double start = now();
    run(batches);
    double seconds = (now() - start) / static_cast<double>(batches);
    input.check(slots[last].out.get(), slots[last].bytes, last, "the last batch");
    return seconds;
}

} // namespace yardstick
