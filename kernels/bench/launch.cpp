// launch: the cost of submitting a small batch to the GPU, by separate calls and by graphs. In every case, a separate
// call records the same event after the batch, and the host polls the event. The cases alternate, so that clock drift
// affects all cases equally.
#include <string.h>

#include <vector>

#include "answers.hpp"
#include "clock.hpp"
#include "input.hpp"
#include "quantile.hpp"
#include "small_batch.hpp"
#include "wait.hpp"

namespace yardstick {

namespace {

constexpr uint64_t kWarmUp = 50; // rounds

// One way to enqueue a batch, and its measurements.
struct Case {
    const char *name;
    bool same; // whether every batch is the same as the first
    std::unique_ptr<Enqueuer> enqueuer;
    std::vector<double> enqueue = {}, total = {};
};

SmallBatch batch_of(uint64_t round, uint64_t bytes) {
    // Sizes alternate, so that every update of a graph changes something.
    return SmallBatch{bytes - 4 * (round % 2 != 0 && bytes > 4), static_cast<uint32_t>(round % 251)};
}

void run(Case *way, cudaStream_t stream, cudaEvent_t done, const SmallBatch &batch) {
    double start = now();
    way->enqueuer->enqueue(stream, batch);
    record(done, stream);
    double enqueued = now();
    poll(done);
    way->total.push_back(now() - start);
    way->enqueue.push_back(enqueued - start);
}

// Checks that the kernels have added their numbers to each byte of the input.
void check_sums(const SmallWork &work, const SmallBatch &batch, const char *name) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < work.kernels; k++) sum += batch.add + k;
    const uint8_t *in = work.slot.in.get(), *out = work.slot.out.get();
    for (uint64_t i = 0; i < batch.bytes; i++) {
        if (out[i] != static_cast<uint8_t>(in[i] + sum)) {
            throw Failure(std::string("launch by ") + name + ": byte " + std::to_string(i) + " is wrong");
        }
    }
}

Json spread(const std::vector<double> &samples) {
    return Json().number("median", median(samples)).number("p99", quantile(samples, 0.99));
}

} // namespace

Json answer_launch(const Request &request, Session &session) {
    uint64_t bytes = request["bytes"], repeats = request["repeats"];
    Slots slots(session.free_list, session.device, bytes, 1);
    Input(session.seed, 0).fill(slots[0].in.get(), bytes, 0);
    SmallWork work{slots[0], static_cast<uint32_t>(request["kernels"])};
    SmallBatch first = batch_of(0, bytes);
    Case ways[] = {{"calls", false, by_calls(work)},
                        {"graph", true, by_graph(work, first)},
                        {"graph_updated", false, by_updated_nodes(work, first)},
                        {"graph_recaptured", false, by_recapture(work, first)}};
    Stream stream = make_stream();
    Event done = make_event(cudaEventDisableTiming);
    for (uint64_t round = 0; round < kWarmUp + repeats; round++) {
        for (Case &way : ways) {
            if (round == kWarmUp) way.enqueue.clear(), way.total.clear();
            bool checked = round == 0 || round + 1 == kWarmUp + repeats;
            if (checked) memset(slots[0].out.get(), 0, bytes);
            SmallBatch batch = way.same ? first : batch_of(round, bytes);
            run(&way, stream.get(), done.get(), batch);
            if (checked) check_sums(work, batch, way.name);
        }
    }
    Json answer;
    for (const Case &way : ways) {
        Json times;
        times.object("enqueue_seconds", spread(way.enqueue)).object("total_seconds", spread(way.total));
        answer.object(way.name, times);
    }
    return answer.boolean("checked", true);
}

} // namespace yardstick
