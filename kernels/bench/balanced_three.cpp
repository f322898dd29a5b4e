// balanced-three: one stream per engine. Batches follow each other on each of the three streams, and events delay each
// stage of a batch until the previous stage has ended.
#include <vector>

#include "answers.hpp"
#include "input.hpp"
#include "schedule.hpp"
#include "wait.hpp"

namespace yardstick {

namespace {

// The events at the ends of a batch's stages.
struct StageEvents {
    Event copied_in, computed, copied_out;
};

void hold(cudaStream_t stream, cudaEvent_t event) {
    check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

} // namespace

Json answer_balanced_three(const Request &request, Session &session) {
    uint32_t rounds = static_cast<uint32_t>(request["rounds"]);
    Wait wait = static_cast<Wait>(request["wait"]);
    Slots slots(session.free_list, session.device, request["bytes"], request["slots"]);
    Stream in = make_stream(), kernel = make_stream(), out = make_stream();
    std::vector<StageEvents> events;
    for (uint64_t i = 0; i < slots.size(); i++) {
        events.push_back(StageEvents{make_event(cudaEventDisableTiming), make_event(cudaEventDisableTiming),
                                     make_wait_event(wait)});
    }
    double seconds = seconds_a_batch(slots, Input(session.seed, rounds), request["batches"], [&](uint64_t batches) {
        for (uint64_t i = 0; i < batches; i++) {
            const Slot &slot = slots[i % slots.size()];
            const StageEvents &slot_events = events[i % slots.size()];
            wait_for(slot_events.copied_out.get(), wait);
            copy_in(in.get(), slot.device_in.get(), slot.in.get(), slot.bytes);
            record(slot_events.copied_in.get(), in.get());
            hold(kernel.get(), slot_events.copied_in.get());
            session.mix(kernel.get(), slot, rounds);
            record(slot_events.computed.get(), kernel.get());
            hold(out.get(), slot_events.computed.get());
            copy_out(out.get(), slot.out.get(), slot.device_out.get(), slot.bytes);
            record(slot_events.copied_out.get(), out.get());
        }
        for (StageEvents &slot_events : events) wait_for(slot_events.copied_out.get(), wait);
    });
    return Json().number("seconds", seconds).boolean("checked", true);
}

} // namespace yardstick
