// Kernels that write the results of the index step, undo a step, end a generation, and replay the log.
#pragma once

#include "neardup_step.cuh"

namespace millrace {

// The beginning of a batch's result (struct millrace_neardup_header).
struct NeardupHeader {
    uint64_t carried; // labels that the generation of the batch's last record carries over
    uint64_t wrong;
};

// A record's part of the result (struct millrace_neardup_row). `label` is the record's own position if it has no hits.
struct NeardupRow {
    NeardupPosition label;
    uint64_t inserted; // set of the bands of the keys that it inserted
    uint8_t hits;      // number of bands
    uint8_t also;      // number of labels in the first list
    uint8_t carries;   // number of different labels of its copied keys; the second list contains them unless the record is relabeled
    uint8_t relabeled;
    uint32_t spare;
};
static_assert(sizeof(NeardupHeader) == 16 && sizeof(NeardupRow) == 32, "the layout of the ABI");

// The number of words in a record's two lists: the positions of `also`, and the positions and bands of the carried labels. It is even, for
// alignment.
MILLRACE_BOTH uint32_t neardup_also_words(uint32_t bands) { return 2 * (bands - 1); }
MILLRACE_BOTH uint32_t neardup_list_words(uint32_t bands) { return neardup_also_words(bands) + (3 * bands + 1) / 2 * 2; }

// The size of a batch's result in bytes.
MILLRACE_BOTH uint64_t neardup_result_bytes(uint64_t records, uint32_t bands) {
    return sizeof(NeardupHeader) + records * (sizeof(NeardupRow) + neardup_list_words(bands) * sizeof(uint64_t));
}

// The arguments of replay: the changes of consecutive records of a log. The memory may be pinned host memory.
struct NeardupReplay {
    NeardupTable young;
    NeardupCounters *counters;
    uint32_t generation;
    uint32_t records, first_label; // number of records, and the label of the first one
    uint32_t keys, carried, first_carried;
    uint32_t carries;              // added to the generation's number of carried labels
    const NeardupPosition *labels;       // label of each record
    const NeardupPosition *carried_labels;
    const unsigned long long *inserted;  // the keys
    const uint32_t *key_labels;          // label of each key
    unsigned long long *conflicts;       // receives the number of keys that the table already contains or that have impossible labels
};

#if defined(__CUDACC__) || defined(MILLRACE_EMULATED)

// Writes the different labels of the hits, except `label`, in ascending order, and returns their number.
__device__ inline uint32_t neardup_write_also(const NeardupPosition &label, const NeardupPosition (&labels)[kNeardupChunks],
                                              const bool (&hits)[kNeardupChunks], NeardupPosition *list) {
    NeardupPosition last = label;
    for (uint32_t count = 0;; count++) {
        bool later[kNeardupChunks] = {hits[0] && last < labels[0], hits[1] && last < labels[1]};
        if (neardup_ballot(later) == 0) return count;
        last = neardup_least(labels, later);
        if (neardup_lane() == 0) list[count] = last;
    }
}

// Writes the labels that a record carries over, and assigns them to its copied keys. Returns the number of labels, even if the record
// is relabeled.
__device__ inline uint32_t neardup_write_carried(const NeardupStep &s, uint32_t record, bool relabeled, uint64_t *list) {
    uint64_t copied = s.copied[record];
    uint32_t count = 0;
    uint32_t first = copied == 0 || relabeled ? 0 : static_cast<uint32_t>(s.counters->before[s.generation]) + s.carries[record];
    neardup_each_copied(s, record, copied, [&](const NeardupPosition &label, uint64_t bands) {
        if (!relabeled) {
            for (uint32_t c = 0; c < kNeardupChunks; c++) {
                uint32_t band = c * 32 + neardup_lane();
                if (bands >> band & 1) neardup_set_label(s.young, s.slots[record * s.bands + band], first + count);
            }
            if (neardup_lane() == 0) {
                s.young.positions[first + count] = label;
                list[3 * count] = label.sequence, list[3 * count + 1] = label.record, list[3 * count + 2] = bands;
            }
        }
        count++;
    });
    return count;
}

// Writes a record's result and its label.
static __global__ void __launch_bounds__(kNeardupThreads) neardup_finish(NeardupStep s) {
    uint32_t record = neardup_warp(), lane = neardup_lane();
    if (record >= s.records) return;
    NeardupPosition labels[kNeardupChunks];
    bool hits[kNeardupChunks];
    for (uint32_t c = 0; c < kNeardupChunks; c++) {
        NeardupHit found = neardup_hit(s, record, c * 32 + lane, s.counters->cut);
        hits[c] = found.hit;
        labels[c] = found.depends ? s.known[s.winner[found.record]] : found.label;
    }
    NeardupRow *rows = reinterpret_cast<NeardupRow *>(s.result + sizeof(NeardupHeader));
    uint64_t *lists = reinterpret_cast<uint64_t *>(rows + s.batch_rows);
    uint64_t *list = lists + static_cast<uint64_t>(s.first_row + record) * neardup_list_words(s.bands);
    NeardupRow row = {};
    row.label = s.known[s.winner[record]];
    row.inserted = s.inserted[record];
    row.hits = static_cast<uint8_t>(__popcll(neardup_ballot(hits)));
    if (row.hits != 0) row.also = static_cast<uint8_t>(neardup_write_also(row.label, labels, hits, reinterpret_cast<NeardupPosition *>(list)));
    bool relabeled = record >= s.counters->cut;
    row.carries = static_cast<uint8_t>(neardup_write_carried(s, record, relabeled, list + neardup_also_words(s.bands)));
    row.relabeled = relabeled && row.carries != 0;
    if (lane != 0) return;
    s.young.positions[s.first_label + record] = row.label;
    rows[s.first_row + record] = row;
    if (record != 0) return;
    *reinterpret_cast<NeardupHeader *>(s.result) = {s.counters->carried[s.generation], s.counters->wrong};
}

// Removes the keys that a step inserted. No other step may have run since.
static __global__ void neardup_remove(NeardupStep s) {
    uint32_t i = blockIdx.x * kNeardupThreads + threadIdx.x;
    if (i == 0) s.counters->carried[s.generation] = s.counters->before[s.generation];
    if (i >= s.records * s.bands || !(s.inserted[i / s.bands] >> i % s.bands & 1)) return;
    *neardup_key_at(s.young, s.slots[i]) = 0, *neardup_label_at(s.young, s.slots[i]) = 0;
}

// Moves the keys of generation `from` to generation `to`, with a thread per slot. `to` contains none of the keys and no labels,
// and its records get the same numbers.
static __global__ void neardup_move(NeardupTable from, NeardupTable to, uint32_t from_generation, uint32_t to_generation, NeardupCounters *counters) {
    uint64_t i = static_cast<uint64_t>(blockIdx.x) * kNeardupThreads + threadIdx.x;
    if (i == 0) {
        counters->carried[to_generation] = counters->carried[from_generation];
        counters->carried[from_generation] = 0;
    }
    if (i >= from.buckets * kNeardupSlots) return;
    unsigned long long key = *neardup_key_at(from, i);
    if (key == 0) return;
    uint32_t label = neardup_label(from, i);
    uint64_t slot;
    neardup_find(to, key, true, &slot);
    neardup_set_label(to, slot, label < from.first_record ? label : label - from.first_record + to.first_record);
}

// Applies the changes of a log, with a thread per key or label.
static __global__ void neardup_insert(NeardupReplay r) {
    uint32_t i = blockIdx.x * kNeardupThreads + threadIdx.x;
    if (i == 0) r.counters->carried[r.generation] += r.carries;
    if (i < r.records) r.young.positions[r.first_label + i] = r.labels[i];
    if (i < r.carried) r.young.positions[r.first_carried + i] = r.carried_labels[i];
    if (i >= r.keys) return;
    unsigned long long key = r.inserted[i];
    uint32_t label = r.key_labels[i];
    uint64_t slot;
    bool possible = label - r.first_label < r.records || label - r.first_carried < r.carried;
    if (key == 0 || !possible || neardup_find(r.young, key, true, &slot)) {
        atomicAdd(r.conflicts, 1ull);
        return;
    }
    neardup_set_label(r.young, slot, label);
}

#endif

} // namespace millrace
