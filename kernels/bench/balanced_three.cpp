// balanced-three: a stream for each engine. Batches stand behind each other in each of the three streams, and events
// hold a batch's stage back until the one before it is through.
#include <vector>

#include "answers.hpp"
#include "input.hpp"
#include "schedule.hpp"
#include "wait.hpp"

namespace yardstick {

namespace {

// Marks the end of a batch's stages.
struct Marks {
    Event copied_in, computed, copied_out;
};

void hold(cudaStream_t stream, cudaEvent_t event) {
    check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

} // namespace

Json answer_balanced_three(const Request &request, Session &session) {
    uint32_t rounds = static_cast<uint32_t>(request["rounds"]);
    Wait wait = static_cast<Wait>(request["wait"]);
    Slots slots(session.shelf, session.device, request["bytes"], request["slots"]);
    Stream in = make_stream(), kernel = make_stream(), out = make_stream();
    std::vector<Marks> marks;
    for (uint64_t i = 0; i < slots.size(); i++) {
        marks.push_back(Marks{make_event(cudaEventDisableTiming), make_event(cudaEventDisableTiming),
                              make_wait_event(wait)});
    }
    double seconds = seconds_a_batch(slots, Input(session.seed, rounds), request["batches"], [&](uint64_t batches) {
        for (uint64_t i = 0; i < batches; i++) {
            const Slot &slot = slots[i % slots.size()];
            const Marks &mark = marks[i % slots.size()];
            wait_for(mark.copied_out.get(), wait);
            copy_in(in.get(), slot.device_in.get(), slot.in.get(), slot.bytes);
            record(mark.copied_in.get(), in.get());
            hold(kernel.get(), mark.copied_in.get());
            session.mix(kernel.get(), slot, rounds);
            record(mark.computed.get(), kernel.get());
            hold(out.get(), mark.computed.get());
            copy_out(out.get(), slot.out.get(), slot.device_out.get(), slot.bytes);
            record(mark.copied_out.get(), out.get());
        }
        for (Marks &mark : marks) wait_for(mark.copied_out.get(), wait);
    });
    return Json().number("seconds", seconds).boolean("checked", true);
}

} // namespace yardstick
