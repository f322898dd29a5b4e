// kernel and calibrate: the time of mix, and the number of rounds with which mix takes as long as a copy.
#include <functional>

#include "../math/mix.cuh"
#include "answers.hpp"
#include "input.hpp"
#include "schedule.hpp"
#include "train.hpp"

namespace yardstick {

namespace {

// Runs one batch from copy in to copy out and checks its result. After this call, the kernel has real input and is warm.
void check_one(Session &session, const Slots &slots, uint32_t rounds) {
    Stream stream = make_stream();
    Input input(session.seed, rounds);
    (void)seconds_a_batch(slots, input, 1, [&](uint64_t batches) {
        for (uint64_t i = 0; i < batches; i++) {
            const Slot &slot = slots[0];
            copy_in(stream.get(), slot.device_in.get(), slot.in.get(), slot.bytes);
            session.mix(stream.get(), slot, rounds);
            copy_out(stream.get(), slot.out.get(), slot.device_out.get(), slot.bytes);
            synchronize(stream.get());
        }
    });
}

Work kernels(const Session &session, const Slot &slot, uint32_t rounds) {
    return [&session, &slot, rounds](cudaStream_t stream) { session.mix(stream, slot, rounds); };
}

// Returns the largest number of rounds for which `seconds_of` is at most `target`, or 0 if there is no such number. The search
// first doubles the number and then bisects.
uint32_t rounds_within(double target, const std::function<double(uint32_t)> &seconds_of) {
    uint32_t below = 0, above = 16;
    while (above < millrace::kMostMixRounds && seconds_of(above) <= target) below = above, above *= 2;
    while (above - below > 1) {
        uint32_t middle = below + (above - below) / 2;
        (seconds_of(middle) <= target ? below : above) = middle;
    }
    return below;
}

} // namespace

Json answer_kernel(const Request &request, Session &session) {
    uint32_t rounds = static_cast<uint32_t>(request["rounds"]);
    Slots slots(session.free_list, session.device, request["bytes"], 1);
    check_one(session, slots, rounds);
    Stream stream = make_stream();
    Work work = kernels(session, slots[0], rounds);
    Json answer;
    answer.number("seconds", seconds_each(stream.get(), 1, request["repeats"], work));
    answer.number("train_seconds", seconds_each(stream.get(), 8, request["repeats"], work));
    return answer.boolean("checked", true);
}

Json answer_calibrate(const Request &request, Session &session) {
    uint64_t bytes = request["bytes"];
    Slots slots(session.free_list, session.device, bytes, 1);
    const Slot &slot = slots[0];
    Stream stream = make_stream();
    uint32_t train = train_of(bytes);
    double in = seconds_each(stream.get(), train, 10, [&](cudaStream_t s) {
        copy_in(s, slot.device_in.get(), slot.in.get(), bytes);
    });
    double out = seconds_each(stream.get(), train, 10, [&](cudaStream_t s) {
        copy_out(s, slot.out.get(), slot.device_out.get(), bytes);
    });
    double copy = (in + out) / 2;
    auto seconds_of = [&](uint32_t rounds) {
        return seconds_each(stream.get(), 8, 3, kernels(session, slot, rounds));
    };
    uint32_t rounds = rounds_within(copy, seconds_of);
    double kernel = seconds_each(stream.get(), 8, 10, kernels(session, slot, rounds));
    check_one(session, slots, rounds);
    Json answer;
    answer.count("rounds", rounds).number("kernel_seconds", kernel).number("copy_seconds", copy);
    answer.number("copy_in_seconds", in).number("copy_out_seconds", out);
    return answer.boolean("checked", true);
}

} // namespace yardstick
