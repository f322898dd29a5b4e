// alloc: the balanced pipeline, with a different scratch size for each batch.
#include <algorithm>
#include <vector>

#include "answers.hpp"
#include "input.hpp"
#include "schedule.hpp"
#include "scratch.hpp"
#include "wait.hpp"

namespace yardstick {

namespace {

// Generates the same sequence of sizes in every run and for every mode.
class Sizes {
public:
    Sizes(uint64_t least, uint64_t most) : least_(least), choices_(most - least + 1) {}
    uint64_t next() { return least_ + next_random(&state_) % choices_; }

private:
    uint64_t least_, choices_, state_ = 1;
};

// The stream of a slot, and the event after its latest batch.
struct Lane {
    Stream stream;
    Event done;
};

// Mixes the words through the scratch, and also writes the last byte of the scratch.
void mix_through(const Session &session, const Slot &slot, cudaStream_t stream, uint8_t *scratch, uint64_t scratch_bytes,
                 uint32_t rounds) {
    uint8_t *last = scratch_bytes > slot.bytes ? scratch + scratch_bytes - 1 : nullptr;
    launch_mix(stream, MixArgs{slot.device_in.get(), scratch, slot.bytes, rounds, last}, session.multiprocessors);
    launch_mix(stream, MixArgs{scratch, slot.device_out.get(), slot.bytes, 0, nullptr}, session.multiprocessors);
}

// Returns the size of the batch in bytes: the requested size, or the number of whole words that fit in the smallest scratch.
uint64_t batch_bytes(const Request &request) {
    uint64_t least = request["least"], most = request["most"], bytes = request["bytes"];
    if (most < least) throw BadRequest("alloc: most is below least: give a most of at least " + std::to_string(least));
    if (bytes > least) {
        throw BadRequest("alloc: bytes=" + std::to_string(bytes) +
                         " is above least: a batch passes through its scratch, so give at most " + std::to_string(least));
    }
    return bytes != 0 ? bytes : std::min<uint64_t>(least / 4 * 4, 256ull << 20);
}

} // namespace

Json answer_alloc(const Request &request, Session &session) {
    uint64_t bytes = batch_bytes(request), batches = request["batches"];
    uint32_t rounds = static_cast<uint32_t>(request["rounds"]);
    Wait wait = static_cast<Wait>(request["wait"]);
    Slots slots(session.free_list, session.device, bytes, request["slots"]);
    std::unique_ptr<Scratch> scratch =
        make_scratch(static_cast<ScratchMode>(request["mode"]), session.device, slots.size(), request["most"]);
    std::vector<Lane> lanes;
    for (uint64_t i = 0; i < slots.size(); i++) lanes.push_back(Lane{make_stream(), make_wait_event(wait)});

    double allocating = 0; // time of the latest run, which is the measured run
    double seconds = seconds_a_batch(slots, Input(session.seed, rounds), batches, [&](uint64_t count) {
        Sizes sizes(request["least"], request["most"]);
        (void)scratch->take_seconds();
        for (uint64_t i = 0; i < count; i++) {
            uint64_t s = i % slots.size(), size = sizes.next();
            cudaStream_t stream = lanes[s].stream.get();
            wait_for(lanes[s].done.get(), wait);
            scratch->finish(s);
            copy_in(stream, slots[s].device_in.get(), slots[s].in.get(), bytes);
            mix_through(session, slots[s], stream, scratch->take(s, size, stream), size, rounds);
            scratch->give_back(s, stream);
            copy_out(stream, slots[s].out.get(), slots[s].device_out.get(), bytes);
            record(lanes[s].done.get(), stream);
        }
        for (uint64_t s = 0; s < slots.size(); s++) {
            wait_for(lanes[s].done.get(), wait);
            scratch->finish(s);
        }
        allocating = scratch->take_seconds();
    });
    Json answer;
    answer.number("seconds", seconds).number("alloc_seconds", allocating / static_cast<double>(batches));
    return answer.count("bytes", bytes).boolean("checked", true);
}

} // namespace yardstick
