// balanced: one stream per slot. A batch's stages follow each other on its stream, and the GPU's engines overlap the
// work of different streams. The host waits for a slot only before it reuses the slot.
#include <vector>

#include "answers.hpp"
#include "input.hpp"
#include "schedule.hpp"
#include "wait.hpp"

namespace yardstick {

Json answer_balanced(const Request &request, Session &session) {
    uint32_t rounds = static_cast<uint32_t>(request["rounds"]);
    Wait wait = static_cast<Wait>(request["wait"]);
    Slots slots(session.free_list, session.device, request["bytes"], request["slots"]);
    std::vector<Stream> streams;
    std::vector<Event> done;
    for (uint64_t i = 0; i < slots.size(); i++) {
        streams.push_back(make_stream());
        done.push_back(make_wait_event(wait));
    }
    double seconds = seconds_a_batch(slots, Input(session.seed, rounds), request["batches"], [&](uint64_t batches) {
        for (uint64_t i = 0; i < batches; i++) {
            uint64_t s = i % slots.size();
            const Slot &slot = slots[s];
            cudaStream_t stream = streams[s].get();
            wait_for(done[s].get(), wait);
            copy_in(stream, slot.device_in.get(), slot.in.get(), slot.bytes);
            session.mix(stream, slot, rounds);
            copy_out(stream, slot.out.get(), slot.device_out.get(), slot.bytes);
            record(done[s].get(), stream);
        }
        for (Event &event : done) wait_for(event.get(), wait);
    });
    return Json().number("seconds", seconds).boolean("checked", true);
}

} // namespace yardstick
