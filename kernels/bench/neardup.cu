// Measures the index of near-duplicates, and compares it with the rule followed on the CPU.
//
//   make -C kernels neardup-bench && kernels/build/neardup-bench verify [RECORDS]
//   kernels/build/neardup-bench time [RECORDS]
//
// `verify` applies streams of all kinds in several arrangements of batches. It undoes some batches and replays a log. RECORDS is the length
// of each stream (default 400,000, at least 3,000). `time` prints microseconds and million records per second. RECORDS is the size of a
// generation (default 28 million, whose table has 8.4 GB). The times are medians of 15 batches. Their keys differ from the keys of recent
// batches, so the caches don't contain their slots.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../neardup_index.hpp"
#include "../test/neardup_stream.hpp"
#include "cuda.hpp"
#include "millrace.h"
#include "quantile.hpp"

namespace {

using namespace millrace;
using yardstick::Failure;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

const millrace_api *api() { return millrace_api_get(MILLRACE_ABI_LEAST); }

// Throws Failure unless the call of the library succeeded.
template <class Call>
void must(Call call) {
    millrace_error error = {};
    error.size = sizeof error;
    if (call(&error) != MILLRACE_OK) throw Failure(error.message);
}

struct Gpu {
    millrace_device *device = nullptr;
    millrace_stream *stream = nullptr;
    Gpu() {
        must([&](millrace_error *e) { return api()->device_open(0, 16, &device, e); });
        must([&](millrace_error *e) { return api()->stream_create(device, &stream, e); });
    }
    void wait() const {
        must([&](millrace_error *e) { return api()->stream_synchronize(stream, e); });
    }
    uint8_t *pinned(uint64_t bytes) const {
        void *memory = nullptr;
        must([&](millrace_error *e) { return api()->host_alloc(device, bytes, &memory, e); });
        return static_cast<uint8_t *>(memory);
    }
    uint64_t memory(uint64_t bytes) const {
        uint64_t address = 0;
        must([&](millrace_error *e) { return api()->device_alloc(device, bytes, &address, e); });
        return address;
    }
};

template <class T>
uint64_t address(T *pointer) { return reinterpret_cast<uint64_t>(pointer); }

// An index that is used through the ABI.
struct Index {
    const Gpu &gpu;
    millrace_neardup_parameters parameters;
    millrace_neardup_memory needs = {};
    millrace_neardup *state = nullptr;

    Index(const Gpu &gpu, uint32_t bands, uint64_t records, uint64_t batch) : gpu(gpu), parameters{sizeof parameters, bands, records, batch} {
        must([&](millrace_error *e) { return api()->neardup_needs(&parameters, &needs, e); });
        must([&](millrace_error *e) { return api()->neardup_create(gpu.stream, &parameters, &state, e); });
    }
    ~Index() {
        millrace_error error = {};
        (void)api()->neardup_destroy(state, &error);
    }
    void apply(uint64_t records, uint64_t keys, uint64_t positions, uint64_t result) {
        millrace_neardup_batch batch = {sizeof batch, 0, records, keys, positions, result};
        must([&](millrace_error *e) { return api()->neardup_apply(state, &batch, e); });
    }
    void undo() {
        must([&](millrace_error *e) { return api()->neardup_undo(state, e); });
    }
};

// ---- verify ----

constexpr uint32_t kBands = 20;
uint32_t stream_records, generation_records, most_in_batch;

// A stream in pinned memory, with the expected answers.
struct Expected {
    const NeardupMix &mix;
    std::unique_ptr<NeardupStream> stream;
    std::vector<NeardupAnswer> answers;
    std::vector<uint64_t> carried;
    uint8_t *keys = nullptr, *positions = nullptr;

    explicit Expected(const NeardupMix &mix) : mix(mix) {}
    void compute() {
        Random random(static_cast<uint64_t>(&mix - neardup_mixes) + 1);
        stream.reset(new NeardupStream(random, kBands, mix, stream_records));
        NeardupReference reference(kBands, generation_records);
        for (uint32_t r = 0; r < stream_records; r++) {
            answers.push_back(reference.apply(stream->positions[r], &stream->keys[r * uint64_t(kBands)]));
            carried.push_back(reference.carried());
        }
    }
    void pin(const Gpu &gpu) {
        keys = gpu.pinned(stream->keys.size() * 8), positions = gpu.pinned(stream->positions.size() * 16);
        memcpy(keys, stream->keys.data(), stream->keys.size() * 8);
        memcpy(positions, stream->positions.data(), stream->positions.size() * 16);
    }
    void apply(Index &index, uint32_t first, uint32_t count, uint8_t *result) const {
        index.apply(count, address(keys) + first * uint64_t(kBands) * 8, address(positions) + first * 16ull, address(result));
        index.gpu.wait();
        for (uint32_t r = 0; r < count; r++) {
            if (neardup_answer(result, count, r, kBands) == answers[first + r]) continue;
            throw Failure(std::string(mix.name) + ": record " + std::to_string(first + r) + " in a batch of " + std::to_string(count) + " from " + std::to_string(first));
        }
        if (reinterpret_cast<NeardupHeader *>(result)->carried != carried[first + count - 1]) throw Failure(std::string(mix.name) + ": carried labels");
    }
};

// Replays records first to end, which belong to one generation.
void replay(Index &index, const Expected &x, uint32_t first, uint32_t end, uint8_t *pinned, double *seconds) {
    NeardupLog log;
    uint32_t start = first / generation_records * generation_records;
    uint64_t before = first == start ? 0 : x.carried[first - 1];
    for (uint32_t r = first; r < end; r++) {
        log.add(x.answers[r], &x.stream->keys[r * uint64_t(kBands)], r - start, generation_records, r == start ? 0 : x.carried[r - 1]);
    }
    auto put = [&](const void *from, uint64_t bytes) {
        if (bytes != 0) memcpy(pinned, from, bytes);
        uint64_t at = address(pinned);
        pinned += (bytes + 255) / 256 * 256;
        return at;
    };
    uint64_t none = 0, *conflicts = reinterpret_cast<uint64_t *>(put(&none, 8));
    millrace_neardup_rows rows = {sizeof rows, 0, first - start, end - first, put(log.labels.data(), log.labels.size() * 16), log.carries,
                                  log.carried.size(), before < generation_records ? before : generation_records, put(log.carried.data(), log.carried.size() * 16),
                                  log.keys.size(), put(log.keys.data(), log.keys.size() * 8), put(log.key_labels.data(), log.key_labels.size() * 4), address(conflicts)};
    Clock::time_point from = Clock::now();
    must([&](millrace_error *e) { return api()->neardup_replay(index.state, &rows, e); });
    index.gpu.wait();
    *seconds += seconds_since(from);
    if (*conflicts != 0) throw Failure(std::string(x.mix.name) + ": conflicts in replay");
}

void verify(uint32_t records) {
    stream_records = records, generation_records = records * 3 / 8, most_in_batch = min(65536u, generation_records);
    std::vector<Expected> all;
    for (const NeardupMix &mix : neardup_mixes) all.emplace_back(mix);
    std::vector<std::thread> threads;
    for (Expected &x : all) threads.emplace_back([&] { x.compute(); });
    for (std::thread &t : threads) t.join();
    Gpu gpu;
    uint8_t *result = gpu.pinned(neardup_result_bytes(65536, kBands)), *pinned = gpu.pinned(64 << 20);
    uint64_t applied = 0, replayed = 0, arrangements = 0;
    double replay_seconds = 0;
    Random random(9);
    for (Expected &x : all) {
        x.pin(gpu);
        for (uint32_t most : {most_in_batch, most_in_batch, min(9000u, most_in_batch), 1024u}) {
            Index index(gpu, kBands, generation_records, most_in_batch);
            for (uint32_t first = 0; first < stream_records; arrangements++) {
                uint32_t count = min(stream_records - first, random.below(3) == 0 ? most : 1 + random.below(most));
                if (random.below(8) == 0) {
                    x.apply(index, first, min(stream_records - first, 1 + random.below(most)), result);
                    index.undo();
                }
                x.apply(index, first, count, result);
                first += count, applied += count;
            }
        }
        Index index(gpu, kBands, generation_records, most_in_batch);
        for (uint32_t first = 0; first < stream_records;) {
            uint32_t end = min(min(first + 1 + random.below(60000), stream_records), (first / generation_records + 1) * generation_records);
            replay(index, x, first, end, pinned, &replay_seconds);
            replayed += end - first;
            uint32_t count = min(1 + random.below(most_in_batch), stream_records - end);
            if (count != 0) x.apply(index, end, count, result);
            first = end + count;
        }
    }
    printf("verify: %zu mixes, %llu records in %llu batches and %llu replayed equal the rule; replay %.1f M records/s\n", all.size(),
           static_cast<unsigned long long>(applied), static_cast<unsigned long long>(arrangements), static_cast<unsigned long long>(replayed),
           static_cast<double>(replayed) / replay_seconds / 1e6);
}

// ---- time ----

constexpr uint32_t kRuns = 15;

// An endless source of records' keys. Some records copy 15 keys of a recent record.
struct Source {
    Random random{3};
    std::vector<unsigned long long> recent; // keys of the last 65,536 records
    uint64_t count = 0;

    Source() : recent(65536 * kBands) {}
    void fill(unsigned long long *keys, NeardupPosition *positions, uint32_t records, uint32_t near) {
        for (uint32_t r = 0; r < records; r++, count++) {
            unsigned long long *own = &recent[count % 65536 * kBands];
            for (uint32_t b = 0; b < kBands; b++) own[b] = random.next() >> 5 << 5 | (b + 1);
            if (near != 0 && random.below(100) < near) {
                const unsigned long long *other = &recent[(count + 1 + random.below(65535)) % 65536 * kBands];
                memcpy(own, other, 15 * sizeof *own);
            }
            memcpy(keys + r * uint64_t(kBands), own, kBands * sizeof *own);
            positions[r] = {count + 1, 0};
        }
    }
};

// Launches on a stream, with an event before each kernel.
struct TimedQueue {
    cudaStream_t stream;
    std::vector<cudaEvent_t> events;
    uint32_t used = 0;

    explicit TimedQueue(cudaStream_t stream) : stream(stream), events(16) {
        for (cudaEvent_t &e : events) yardstick::check(cudaEventCreate(&e), "cudaEventCreate");
    }
    void mark() { yardstick::check(cudaEventRecord(events[used++], stream), "cudaEventRecord"); }
    int32_t clear(void *memory, uint64_t bytes) { return cudaMemsetAsync(memory, 0, bytes, stream); }
    int32_t copy(void *to, const void *from, uint64_t bytes) { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream); }
    template <class... Parameters, class... Arguments>
    int32_t run(const char *, uint64_t blocks, uint32_t threads, void (*kernel)(Parameters...), const Arguments &...arguments) {
        if (timed) mark();
        kernel<<<static_cast<uint32_t>(blocks), threads, 0, stream>>>(arguments...);
        return cudaGetLastError();
    }
    int32_t run_together(const char *, uint64_t blocks, uint32_t threads, void (*kernel)(NeardupStep), NeardupStep step) {
        if (timed) mark();
        void *arguments[] = {&step};
        return cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(kernel), dim3(static_cast<uint32_t>(blocks)), dim3(threads), arguments, 0, stream);
    }
    bool timed = false;
};

struct Bench {
    Gpu gpu;
    uint64_t generation;
    cudaStream_t stream = nullptr;
    std::unique_ptr<TimedQueue> queue;
    std::unique_ptr<NeardupIndex<TimedQueue>> index;
    unsigned long long *keys;     // pinned; kRuns batches of up to 65,536
    NeardupPosition *positions;   // pinned
    uint64_t device_keys, device_positions, device_result;
    uint8_t *result; // pinned
    Source source;
    uint64_t filled = 0; // number of records applied so far

    static constexpr uint64_t kMost = 65536;

    explicit Bench(uint64_t generation) : generation(generation) {
        yardstick::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        queue.reset(new TimedQueue(stream));
        NeardupShape shape = {kBands, generation, kMost};
        uint64_t bytes = neardup_memory(shape, 0).end;
        index.reset(new NeardupIndex<TimedQueue>(shape, gpu.memory(bytes), {1024, 132, 4096}, {0x9e3779b97f4a7c15ull, 0x5851f42d4c957f2dull, 1}));
        index->begin(*queue);
        printf("%.1f M records per generation, %.2f GB, %.1f B per record of both\n", generation / 1e6, bytes / 1e9, static_cast<double>(bytes) / (2.0 * generation));
        keys = reinterpret_cast<unsigned long long *>(gpu.pinned(kRuns * kMost * kBands * 8));
        positions = reinterpret_cast<NeardupPosition *>(gpu.pinned(kRuns * kMost * 16));
        device_keys = gpu.memory(kMost * kBands * 8), device_positions = gpu.memory(kMost * 16);
        device_result = gpu.memory(neardup_result_bytes(kMost, kBands));
        result = gpu.pinned(neardup_result_bytes(kMost, kBands));
    }
    void apply(uint32_t records, uint64_t k, uint64_t p, uint64_t r) {
        int32_t status = index->apply(*queue, {records, reinterpret_cast<unsigned long long *>(k), reinterpret_cast<NeardupPosition *>(p), reinterpret_cast<uint8_t *>(r)});
        yardstick::check(static_cast<cudaError_t>(status), "apply");
        filled += records;
    }
    // Applies records without duplicates until the given share of the young generation is used.
    void fill_to(double share) {
        uint64_t target = filled / generation * generation + static_cast<uint64_t>(share * static_cast<double>(generation));
        for (uint32_t slot = 0; filled < target; slot = (slot + 1) % kRuns) {
            uint32_t n = static_cast<uint32_t>(min(kMost, target - filled));
            if (slot == 0) yardstick::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            source.fill(keys + slot * kMost * kBands, positions + slot * kMost, n, 0);
            apply(n, address(keys + slot * kMost * kBands), address(positions + slot * kMost), device_result);
        }
        yardstick::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    template <class Fill>
    void measure(const char *what, uint32_t records, Fill fill) {
        std::vector<double> parts[7], whole, copied;
        // Kernels alone, with everything in device memory.
        auto prepare = [&] {
            for (uint32_t i = 0; i < kRuns; i++) fill(keys + i * kMost * kBands, positions + i * kMost, records);
        };
        prepare();
        queue->timed = true;
        for (uint32_t i = 0; i < kRuns; i++) {
            yardstick::check(cudaMemcpyAsync(reinterpret_cast<void *>(device_keys), keys + i * kMost * kBands, records * uint64_t(kBands) * 8, cudaMemcpyHostToDevice, stream), "copy");
            yardstick::check(cudaMemcpyAsync(reinterpret_cast<void *>(device_positions), positions + i * kMost, records * 16ull, cudaMemcpyHostToDevice, stream), "copy");
            queue->used = 0;
            apply(records, device_keys, device_positions, device_result);
            queue->mark();
            yardstick::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            for (uint32_t p = 0; p < 7; p++) {
                float ms = 0;
                yardstick::check(cudaEventElapsedTime(&ms, queue->events[p == 6 ? 0 : p], queue->events[p == 6 ? 6 : p + 1]), "cudaEventElapsedTime");
                parts[p].push_back(ms * 1e3);
            }
        }
        queue->timed = false;
        prepare();
        for (uint32_t i = 0; i < kRuns; i++) { // the whole call, with the batch in pinned memory
            Clock::time_point from = Clock::now();
            apply(records, address(keys + i * kMost * kBands), address(positions + i * kMost), address(result));
            yardstick::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            whole.push_back(seconds_since(from) * 1e6);
        }
        prepare();
        for (uint32_t i = 0; i < kRuns; i++) { // the whole call, with keys copied to the device
            Clock::time_point from = Clock::now();
            yardstick::check(cudaMemcpyAsync(reinterpret_cast<void *>(device_keys), keys + i * kMost * kBands, records * uint64_t(kBands) * 8, cudaMemcpyHostToDevice, stream), "copy");
            apply(records, device_keys, address(positions + i * kMost), address(result));
            yardstick::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            copied.push_back(seconds_since(from) * 1e6);
        }
        prepare();
        Clock::time_point from = Clock::now(); // calls back to back
        for (uint32_t i = 0; i < kRuns; i++) apply(records, address(keys + i * kMost * kBands), address(positions + i * kMost), address(result));
        yardstick::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        double together = seconds_since(from) * 1e6 / kRuns;
        double sum = 0;
        for (uint32_t p = 0; p < 6; p++) sum += yardstick::median(parts[p]);
        printf("%-22s %5u: %6.1f us %4.0f M/s (", what, records, yardstick::median(parts[6]), records / yardstick::median(parts[6]));
        for (uint32_t p = 0; p < 6; p++) printf("%s%.0f", p ? " " : "", yardstick::median(parts[p]));
        printf(") call %.0f copied %.0f, in a row %.0f = %.0f M/s\n", yardstick::median(whole), yardstick::median(copied), together, records / together);
    }
    void near(const char *what, uint32_t records, uint32_t percent) {
        measure(what, records, [&](unsigned long long *k, NeardupPosition *p, uint32_t n) { source.fill(k, p, n, percent); });
    }
};

void time_all(uint64_t generation) {
    Bench bench(generation);
    printf("load, near: kernels (probe gather carry guess settle finish); the whole call\n");
    for (const char *old : {"", "old full"}) {
        for (double load : {0.1, 0.5, 0.77}) {
            bench.fill_to(load / 0.8);
            char what[64];
            for (uint32_t percent : {30u, 0u}) {
                snprintf(what, sizeof what, "%.2f %u%% %s", load, percent, old);
                bench.near(what, 8192, percent);
            }
            snprintf(what, sizeof what, "%.2f 30%% %s", load, old);
            if (load == 0.5) bench.near(what, 1024, 30), bench.near(what, 65536, 30);
        }
        bench.fill_to(1);
    }
    bench.fill_to(0.5);
    for (uint32_t records : {8192u, 65536u}) {
        bench.measure("chain", records, [&](unsigned long long *k, NeardupPosition *p, uint32_t n) {
            bench.source.fill(k, p, n, 0);
            for (uint32_t r = 1; r < n; r++) k[r * uint64_t(kBands) + r % kBands] = k[(r - 1) * uint64_t(kBands) + r % kBands];
        });
        bench.measure("equal", records, [&](unsigned long long *k, NeardupPosition *p, uint32_t n) {
            bench.source.fill(k, p, n, 0);
            for (uint32_t r = 1; r < n; r++) memcpy(k + r * uint64_t(kBands), k, kBands * 8);
        });
    }
}

} // namespace

int main(int count, char **arguments) {
    std::string mode = count > 1 ? arguments[1] : "";
    try {
        if (mode == "verify") return verify(count > 2 ? static_cast<uint32_t>(std::stoul(arguments[2])) : 400000), 0;
        if (mode == "time") return time_all(count > 2 ? std::stoull(arguments[2]) : 28000000), 0;
    } catch (const std::exception &e) {
        fprintf(stderr, "neardup-bench: %s\n", e.what());
        return 1;
    }
    fprintf(stderr, "usage: neardup-bench verify [RECORDS] | time [RECORDS]\n");
    return 2;
}
