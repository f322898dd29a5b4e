// Tests the index of near-duplicates on the host: compares streams of many kinds, in many arrangements of batches, with the
// reference.
#include <memory>

#include "cuda_on_host.hpp"
#include "hopper_on_host.hpp"

#include "../neardup_index.hpp"
#include "check.hpp"
#include "neardup_stream.hpp"

using namespace millrace;

namespace {

// A queue that executes each call at once. It counts the kinds of launches that the tests must reach.
struct HostQueue {
    uint32_t settled_together = 0, moves = 0;

    int32_t clear(void *memory, uint64_t bytes) { return memset(memory, 0, bytes), 0; }
    int32_t copy(void *to, const void *from, uint64_t bytes) { return memcpy(to, from, bytes), 0; }
    template <class Kernel, class... Arguments>
    int32_t run(const char *name, uint64_t blocks, uint32_t threads, Kernel *kernel, const Arguments &...arguments) {
        moves += strcmp(name, "neardup_move") == 0;
        emulator::launch(static_cast<uint32_t>(blocks), threads, kernel, arguments...);
        return 0;
    }
    template <class Kernel>
    int32_t run_together(const char *, uint64_t blocks, uint32_t threads, Kernel *kernel, const NeardupStep &s) {
        settled_together += s.counters->waiting > s.one_block;
        emulator::launch_clusters(static_cast<uint32_t>(blocks), static_cast<uint32_t>(blocks), threads, kernel, s);
        return 0;
    }
};

HostQueue queue;

// An index with its memory, which is initialized with noise.
struct HostIndex {
    NeardupShape shape;
    std::vector<uint64_t> memory;
    std::unique_ptr<NeardupIndex<HostQueue>> index;

    HostIndex(const NeardupShape &shape, uint32_t one_block) : shape(shape) {
        memory.assign(neardup_memory(shape, 0).end / 8 + 32 + 1, 0xdeadbeefdeadbeefull);
        uint64_t address = (reinterpret_cast<uint64_t>(memory.data()) + 255) / 256 * 256;
        index.reset(new NeardupIndex<HostQueue>(shape, address, {64, 3, one_block}, {0x9e3779b97f4a7c15ull, 0x5851f42d4c957f2dull, 1}));
        index->begin(queue);
    }

    // Applies `count` records of a stream and compares them with the answers. Returns the header.
    NeardupHeader apply(const char *what, const NeardupStream &stream, const std::vector<NeardupAnswer> &want, uint32_t first, uint32_t count) {
        std::vector<uint64_t> result(neardup_result_bytes(count, shape.bands) / 8 + 1, 0xeeeeeeeeeeeeeeeeull);
        uint8_t *bytes = reinterpret_cast<uint8_t *>(reinterpret_cast<uint64_t>(result.data()) / 16 * 16);
        CHECK_EQUAL(reinterpret_cast<uint64_t>(bytes), reinterpret_cast<uint64_t>(result.data()), "alignment of memory");
        index->apply(queue, {count, stream.keys.data() + first * shape.bands, stream.positions.data() + first, bytes});
        for (uint32_t r = 0; r < count; r++) {
            NeardupAnswer got = neardup_answer(bytes, count, r, shape.bands);
            CHECK_EQUAL(got == want[first + r], true, "%s, %u bands, generations of %llu: record %u, in a batch of %u from %u: hits %u of %u, label %llu of %llu",
                        what, shape.bands, static_cast<unsigned long long>(shape.records), first + r, count, first, got.row.hits, want[first + r].row.hits,
                        static_cast<unsigned long long>(got.row.label.sequence), static_cast<unsigned long long>(want[first + r].row.label.sequence));
        }
        return *reinterpret_cast<NeardupHeader *>(bytes);
    }
};

struct Case {
    NeardupShape shape;
    uint32_t one_block;
};

const Case cases[] = {
    {{1, 9, 9}, 4096}, {{3, 31, 31}, 2}, {{20, 64, 64}, 10}, {{64, 17, 17}, 4096}, {{33, 30, 23}, 0}, {{20, 200, 150}, 20},
};

std::vector<NeardupAnswer> answers(const NeardupStream &stream, const NeardupShape &shape, std::vector<uint64_t> *carried) {
    NeardupReference reference(shape.bands, shape.records);
    std::vector<NeardupAnswer> all;
    for (uint32_t r = 0; r < stream.records(); r++) {
        all.push_back(reference.apply(stream.positions[r], &stream.keys[r * shape.bands]));
        carried->push_back(reference.carried());
    }
    return all;
}

// Applies the stream in batches of random sizes. Before some batches, it applies and undoes another batch.
void check_batches(Random &random, const char *what, const Case &c, const NeardupStream &stream, const std::vector<NeardupAnswer> &want,
                   const std::vector<uint64_t> &carried) {
    HostIndex own(c.shape, c.one_block);
    uint32_t most = static_cast<uint32_t>(c.shape.batch);
    for (uint32_t first = 0; first < stream.records();) {
        uint32_t room = stream.records() - first, other = min(room, 1 + random.below(most)), count = min(room, 1 + random.below(most));
        if (random.below(4) == 0) {
            own.apply(what, stream, want, first, other);
            CHECK_EQUAL(own.index->undoable(), true, "after a batch");
            own.index->undo(queue);
            CHECK_EQUAL(own.index->undoable(), false, "after undoing");
        }
        NeardupHeader header = own.apply(what, stream, want, first, count);
        first += count;
        CHECK_EQUAL(header.carried, carried[first - 1], "%s: carried labels after %u records", what, first);
        CHECK_EQUAL(header.wrong, 0u, "%s: keys of wrong bands", what);
    }
}

// Replays records `first` to `end` of the stream, which belong to one generation, and returns the number of conflicts.
unsigned long long replay(HostIndex &own, const NeardupStream &stream, const std::vector<NeardupAnswer> &want, const std::vector<uint64_t> &carried,
                          uint32_t first, uint32_t end) {
    NeardupLog log;
    uint64_t start = first / own.shape.records * own.shape.records, before = first == start ? 0 : carried[first - 1];
    for (uint32_t r = first; r < end; r++) {
        log.add(want[r], &stream.keys[r * own.shape.bands], r - start, own.shape.records, r == start ? 0 : carried[r - 1]);
    }
    unsigned long long conflicts = 0;
    NeardupReplay rows = {};
    rows.records = end - first, rows.keys = static_cast<uint32_t>(log.keys.size()), rows.carried = static_cast<uint32_t>(log.carried.size());
    rows.first_carried = static_cast<uint32_t>(min(before, own.shape.records)), rows.carries = log.carries;
    rows.labels = log.labels.data(), rows.carried_labels = log.carried.data();
    rows.inserted = log.keys.data(), rows.key_labels = log.key_labels.data(), rows.conflicts = &conflicts;
    own.index->replay(queue, first - start, rows);
    return conflicts;
}

// Replays the log of a stream in parts. After some parts, it applies the next records instead.
void check_replay(Random &random, const char *what, const Case &c, const NeardupStream &stream, const std::vector<NeardupAnswer> &want,
                  const std::vector<uint64_t> &carried) {
    HostIndex own(c.shape, c.one_block);
    uint32_t records = static_cast<uint32_t>(c.shape.records);
    for (uint32_t first = 0; first < stream.records();) {
        uint32_t end = min(min(first + 1 + random.below(records), stream.records()), (first / records + 1) * records);
        CHECK_EQUAL(replay(own, stream, want, carried, first, end), 0u, "%s: conflicts in records %u to %u", what, first, end);
        first = end;
        if (random.below(3) != 0 || first == stream.records()) continue;
        uint32_t count = min(1 + random.below(static_cast<uint32_t>(c.shape.batch)), stream.records() - first);
        NeardupHeader header = own.apply(what, stream, want, first, count);
        first += count;
        CHECK_EQUAL(header.carried, carried[first - 1], "%s: carried labels after replay and %u records", what, first);
    }
}

} // namespace

void check_neardup() {
    Random random(17);
    for (const Case &c : cases) {
        for (const NeardupMix &mix : neardup_mixes) {
            NeardupStream stream(random, c.shape.bands, mix, static_cast<uint32_t>(c.shape.records) * 2 + 20);
            std::vector<uint64_t> carried;
            std::vector<NeardupAnswer> want = answers(stream, c.shape, &carried);
            check_batches(random, mix.name, c, stream, want, carried);
            check_replay(random, mix.name, c, stream, want, carried);
        }
    }
    CHECK_EQUAL(queue.settled_together != 0, true, "no step settled with several blocks");
    CHECK_EQUAL(queue.moves != 0, true, "no batch ended a generation");
}
