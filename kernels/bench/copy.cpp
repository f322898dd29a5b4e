// copy: the rates of copies between host and GPU. They are upper bounds for every schedule.
#include <string.h>

#include <vector>

#include "answers.hpp"
#include "input.hpp"
#include "quantile.hpp"
#include "train.hpp"

namespace yardstick {

namespace {

Work copies_in(const Slot &slot) {
    return [&slot](cudaStream_t stream) { copy_in(stream, slot.device_in.get(), slot.in.get(), slot.bytes); };
}

Work copies_out(const Slot &slot) {
    return [&slot](cudaStream_t stream) { copy_out(stream, slot.out.get(), slot.device_out.get(), slot.bytes); };
}

// Returns the seconds of one copy while copies in the other direction run. The copies in the other direction start a quarter of a
// train earlier. They still run when the measured train ends, unless they are twice as fast.
double seconds_beside(const Work &measured, const Work &other, uint32_t train, uint64_t repeats) {
    Stream stream = make_stream(), beside = make_stream();
    Event begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
    std::vector<double> samples;
    for (uint64_t i = 0; i < repeats; i++) {
        for (uint32_t c = 0; c < train / 4; c++) other(beside.get());
        record(begin.get(), stream.get());
        for (uint32_t c = 0; c < train; c++) {
            measured(stream.get());
            other(beside.get());
        }
        record(end.get(), stream.get());
        for (uint32_t c = 0; c < train; c++) other(beside.get());
        synchronize(stream.get());
        synchronize(beside.get());
        samples.push_back(seconds_between(begin.get(), end.get()) / train);
    }
    return median(samples);
}

// Copies the slot's input from `from` to the GPU, and then to the slot's output. Checks that the output equals the input.
void check_way(const Slot &slot, const Input &input, const uint8_t *from, const char *what) {
    Stream stream = make_stream();
    memset(slot.out.get(), 0, slot.bytes);
    copy_in(stream.get(), slot.device_in.get(), from, slot.bytes);
    copy_out(stream.get(), slot.out.get(), slot.device_in.get(), slot.bytes);
    synchronize(stream.get());
    input.check(slot.out.get(), slot.bytes, 0, what);
}

} // namespace

Json answer_copy(const Request &request, Session &session) {
    uint64_t bytes = request["bytes"], repeats = request["repeats"];
    Slots slots(session.free_list, session.device, bytes, 1);
    const Slot &slot = slots[0];
    Input input(session.seed, 0);
    input.fill(slot.in.get(), bytes, 0);
    check_way(slot, input, slot.in.get(), "what was copied in and out");
    std::vector<uint8_t> pageable(slot.in.get(), slot.in.get() + bytes);

    Stream stream = make_stream();
    Work in = copies_in(slot), out = copies_out(slot), from_pageable = [&](cudaStream_t s) {
        copy_in(s, slot.device_in.get(), pageable.data(), bytes);
    };
    uint32_t train = train_of(bytes);
    auto rate = [bytes](double seconds) { return static_cast<double>(bytes) / seconds; };
    Json answer;
    answer.number("in", rate(seconds_each(stream.get(), train, repeats, in)));
    answer.number("out", rate(seconds_each(stream.get(), train, repeats, out)));
    answer.number("both_in", rate(seconds_beside(in, out, train, repeats)));
    answer.number("both_out", rate(seconds_beside(out, in, train, repeats)));
    answer.number("one_in", rate(seconds_each(stream.get(), 1, repeats, in)));
    answer.number("one_out", rate(seconds_each(stream.get(), 1, repeats, out)));
    answer.number("pageable_in", rate(seconds_each(stream.get(), 8, repeats, from_pageable)));
    check_way(slot, input, pageable.data(), "what was copied in from pageable memory");
    return answer.boolean("checked", true);
}

} // namespace yardstick
