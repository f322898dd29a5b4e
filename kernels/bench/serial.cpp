// serial: a schedule without overlap. It has one slot and one stream, and the host waits after each stage.
#include "answers.hpp"
#include "input.hpp"
#include "schedule.hpp"

namespace yardstick {

Json answer_serial(const Request &request, Session &session) {
    uint32_t rounds = static_cast<uint32_t>(request["rounds"]);
    Slots slots(session.free_list, session.device, request["bytes"], 1);
    const Slot &slot = slots[0];
    Stream own = make_stream();
    cudaStream_t stream = own.get();
    double seconds = seconds_a_batch(slots, Input(session.seed, rounds), request["batches"], [&](uint64_t batches) {
        for (uint64_t i = 0; i < batches; i++) {
            copy_in(stream, slot.device_in.get(), slot.in.get(), slot.bytes);
            synchronize(stream);
            session.mix(stream, slot, rounds);
            synchronize(stream);
            copy_out(stream, slot.out.get(), slot.device_out.get(), slot.bytes);
            synchronize(stream);
        }
    });
    return Json().number("seconds", seconds).boolean("checked", true);
}

} // namespace yardstick
