// The index step of near-duplicates: the records of a batch that belong to one generation, in six kernels.
//
//   probe   (a thread per key) finds or inserts the key, and looks it up in the old generation
//   gather  (a warp per record) finds which keys the record inserted
//   carry   (one block) decides which records carry over the labels of their copied keys
//   guess   (a warp per record) computes the least label that is known without other records of the batch
//   settle  (one block, or all) follows the dependencies between records of the batch (neardup_settle.cuh)
//   finish  (a warp per record) writes the verdict and what the log needs (neardup_finish.cuh)
//
// The package comment of internal/operator/neardup has the rule. The results of the kernels depend only on the order of the
// records. The order of the waiting list and of the keys in the table may vary.
#pragma once

#include "neardup_table.cuh"
#include "reduce.cuh"

namespace millrace {

constexpr uint32_t kNeardupThreads = 256, kNeardupWarps = kNeardupThreads / 32;
constexpr uint32_t kNeardupBlock = 1024; // maximum number of threads in a block of carry or settle
constexpr uint32_t kNeardupChunks = 2;          // a lane processes up to two bands of a record, so a warp processes up to 64

// Counters that kernels share within a step and between steps. All are zero at first.
struct NeardupCounters {
    unsigned long long carried[3]; // by generation: number of labels that its records carry over, including labels for which there was no space
    unsigned long long before[3];  // `carried` before the generation's last step
    uint32_t cut;                  // number of the first record whose labels don't fit; no later record has labels either
    uint32_t total;                // number of labels that the step's records would carry over
    uint32_t waiting;              // length of the list of waiting records
    uint32_t changed[3];           // whether a round of settle changed a record, by its number modulo 3
    uint32_t wrong;                // number of keys with wrong bands since the beginning
};

// The arguments of the kernels. Keys and positions may be in pinned host memory. The kernels read each of them once.
struct NeardupStep {
    uint32_t records, bands, band_bits;
    uint32_t first_label;   // the first record's label
    uint32_t generation;    // index in NeardupCounters.carried
    uint32_t one_block;     // maximum number of waiting records that one block settles alone
    uint64_t limit;         // maximum number of carried labels
    NeardupTable young, old;
    const unsigned long long *keys;   // by record and band
    const NeardupPosition *positions; // by record
    NeardupCounters *counters;

    uint64_t *slots;    // by key: its slot in the young generation
    uint32_t *former;   // by key: its label in the old generation, or kNeardupAbsent if the young one had it
    uint32_t *labels;   // by key: its label after probe; from first_label on, the label of the first record with the key
    uint64_t *inserted; // by record: bands of its inserted keys
    uint64_t *copied;   // by record: the bands of inserted keys that the old generation has
    uint32_t *carries;  // by record: number of different labels of its copied keys; after carry, the sum of those numbers for all records before it
    NeardupPosition *known; // by record: the least label that is known before settle, at most its own position
    uint32_t *winner;       // by record: the record whose `known` is its label
    uint32_t *nearest;      // by record: the latest record that it depends on, or itself
    uint32_t *pointer;      // by record: a record that it depends on, directly or indirectly, or itself
    uint32_t *edges;        // by record: numbers of the records that it depends on
    uint32_t *edge_count;   // by record
    uint32_t *waiting;      // numbers of the records that depend on others
    uint8_t *result;        // NeardupHeader, a NeardupRow for each record, and their lists. It may be in host memory.
    uint32_t first_row;     // the first record's number in the batch
    uint32_t batch_rows;    // number of records in the batch
};

#if defined(__CUDACC__) || defined(MILLRACE_EMULATED)

// The number of this warp in the grid. In kernels with a warp per record, warps without a record return.
__device__ inline uint32_t neardup_warp() { return blockIdx.x * kNeardupWarps + threadIdx.x / 32; }
__device__ inline uint32_t neardup_lane() { return threadIdx.x % 32; }

// Combines the ballots of the lanes' first and second bands into one set of bands.
__device__ inline uint64_t neardup_ballot(const bool (&flags)[kNeardupChunks]) {
    uint32_t low = __ballot_sync(0xffffffffu, flags[0]), high = __ballot_sync(0xffffffffu, flags[1]);
    return static_cast<uint64_t>(high) << 32 | low;
}

// Returns the least of the positions whose flag is set. At least one flag of the warp is set.
__device__ inline NeardupPosition neardup_least(const NeardupPosition (&positions)[kNeardupChunks], const bool (&flags)[kNeardupChunks]) {
    bool in = flags[0] || flags[1];
    uint32_t c = !flags[0] || (flags[1] && positions[1] < positions[0]);
    NeardupPosition mine = positions[c];
    uint32_t words[4] = {static_cast<uint32_t>(mine.sequence >> 32), static_cast<uint32_t>(mine.sequence),
                         static_cast<uint32_t>(mine.record >> 32), static_cast<uint32_t>(mine.record)};
    UNROLL(4)
    for (uint32_t &word : words) {
        uint32_t least = reduce_min(in ? word : ~0u);
        in = in && word == least;
        word = least;
    }
    return {static_cast<uint64_t>(words[0]) << 32 | words[1], static_cast<uint64_t>(words[2]) << 32 | words[3]};
}

__device__ inline uint64_t neardup_broadcast(uint64_t value, uint32_t lane) {
    uint32_t low = __shfl_sync(0xffffffffu, static_cast<uint32_t>(value), static_cast<int>(lane));
    uint32_t high = __shfl_sync(0xffffffffu, static_cast<uint32_t>(value >> 32), static_cast<int>(lane));
    return static_cast<uint64_t>(high) << 32 | low;
}

// Calls visit(label, bands) for each different label of a record's copied keys, in the order of their first bands.
template <class Visit>
__device__ inline void neardup_each_copied(const NeardupStep &s, uint32_t record, uint64_t copied, Visit visit) {
    if (copied == 0) return;
    NeardupPosition labels[kNeardupChunks] = {};
    for (uint32_t c = 0; c < kNeardupChunks; c++) {
        uint32_t band = c * 32 + neardup_lane();
        if (copied >> band & 1) labels[c] = s.old.positions[s.former[record * s.bands + band]];
    }
    while (copied != 0) {
        uint32_t band = static_cast<uint32_t>(__ffsll(static_cast<long long>(copied))) - 1;
        NeardupPosition mine = labels[band / 32], label;
        label.sequence = neardup_broadcast(mine.sequence, band % 32);
        label.record = neardup_broadcast(mine.record, band % 32);
        bool same[kNeardupChunks] = {labels[0] == label, labels[1] == label};
        uint64_t bands = neardup_ballot(same) & copied;
        visit(label, bands);
        copied &= ~bands;
    }
}

// Finds a key in the young generation, or inserts it. The key gets the least label.
static __global__ void neardup_probe(NeardupStep s) {
    uint32_t i = blockIdx.x * kNeardupThreads + threadIdx.x;
    if (i >= s.records * s.bands) return;
    unsigned long long given = s.keys[i];
    unsigned long long key = given >> s.band_bits << s.band_bits | (i % s.bands + 1);
    if (key != given) atomicAdd(&s.counters->wrong, 1u);

    uint64_t slot, old_slot;
    neardup_find(s.young, key, true, &slot);
    s.slots[i] = slot;
    uint32_t former = kNeardupAbsent;
    if (neardup_lower(s.young, slot, s.first_label + i / s.bands) >= s.first_label) {
        if (neardup_find(s.old, key, false, &old_slot)) former = neardup_label(s.old, old_slot);
    }
    s.former[i] = former;
}

// Stores which keys a record inserted, and which of them it copies from the old generation.
static __global__ void __launch_bounds__(kNeardupThreads) neardup_gather(NeardupStep s) {
    uint32_t record = neardup_warp();
    if (record >= s.records) return;
    bool inserts[kNeardupChunks] = {}, copies[kNeardupChunks] = {};
    for (uint32_t c = 0; c < kNeardupChunks; c++) {
        uint32_t band = c * 32 + neardup_lane(), i = record * s.bands + band;
        if (band >= s.bands) continue;
        uint32_t label = neardup_label(s.young, s.slots[i]);
        s.labels[i] = label;
        inserts[c] = label == s.first_label + record;
        copies[c] = inserts[c] && s.former[i] != kNeardupAbsent;
    }
    uint64_t inserted = neardup_ballot(inserts), copied = neardup_ballot(copies);
    uint32_t carries = 0;
    neardup_each_copied(s, record, copied, [&](const NeardupPosition &, uint64_t) { carries++; });
    if (neardup_lane() != 0) return;
    s.inserted[record] = inserted, s.copied[record] = copied, s.carries[record] = carries;
    if (carries != 0) atomicAdd(&s.counters->total, carries);
}

// Returns the sum of `value` over the block's threads before this thread, and the sum over all threads in *sum. `sums` is in
// shared memory.
__device__ inline uint32_t neardup_scan(uint32_t value, uint32_t *sums, uint32_t *sum) {
    uint32_t until = value;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, until, distance);
        if (neardup_lane() >= distance) until += other;
    }
    if (neardup_lane() == 31) sums[threadIdx.x / 32] = until;
    __syncthreads();
    uint32_t before = 0;
    *sum = 0;
    for (uint32_t warp = 0; warp < blockDim.x / 32; warp++) {
        if (warp < threadIdx.x / 32) before += sums[warp];
        *sum += sums[warp];
    }
    __syncthreads();
    return before + until - value;
}

// Replaces the records' numbers of carried labels by the sums over the records before them, and finds the first record whose labels don't
// fit.
__device__ inline void neardup_add_up(const NeardupStep &s, uint64_t base, uint32_t *sums, uint32_t *cut) {
    uint32_t before = 0;
    for (uint32_t from = 0; from < s.records; from += blockDim.x) {
        uint32_t record = from + threadIdx.x, sum;
        uint32_t carries = record < s.records ? s.carries[record] : 0;
        uint32_t own = before + neardup_scan(carries, sums, &sum);
        if (record < s.records) s.carries[record] = own;
        if (base + own <= s.limit && base + own + carries > s.limit) *cut = record; // this condition is true for only one record
        before += sum;
    }
}

// Runs in one block.
static __global__ void __launch_bounds__(kNeardupBlock) neardup_carry(NeardupStep s) {
    __shared__ uint32_t sums[kNeardupBlock / 32], cut;
    NeardupCounters &counters = *s.counters;
    uint64_t base = counters.carried[s.generation];
    uint32_t total = counters.total;
    if (threadIdx.x == 0) cut = base > s.limit ? 0 : s.records;
    __syncthreads();
    if (total != 0) neardup_add_up(s, base, sums, &cut);
    __syncthreads();
    if (threadIdx.x != 0) return;
    counters.before[s.generation] = base, counters.carried[s.generation] = base + total;
    counters.cut = cut, counters.total = 0, counters.waiting = 0;
    for (uint32_t &changed : counters.changed) changed = 0;
}

// The label that a record finds for a key. If `depends` is true, the label is the label of another record of the batch.
struct NeardupHit {
    bool hit, depends;
    uint32_t record;       // set if depends is true
    NeardupPosition label; // set if depends is false
};

__device__ inline NeardupHit neardup_hit(const NeardupStep &s, uint32_t record, uint32_t band, uint32_t cut) {
    NeardupHit found = {};
    if (band >= s.bands) return found;
    uint32_t i = record * s.bands + band, label = s.labels[i], former = s.former[i];
    found.hit = true;
    if (label < s.first_label) {
        found.label = s.young.positions[label];
        return found;
    }
    found.record = label - s.first_label;
    if (former != kNeardupAbsent && (found.record == record || found.record < cut)) {
        found.label = s.old.positions[former];
        return found;
    }
    found.hit = found.depends = found.record != record;
    return found;
}

// Stores the numbers of the records that a record depends on, each at most once per 32 bands. Returns the last one, or the record
// itself.
__device__ inline uint32_t neardup_store_edges(const NeardupStep &s, uint32_t record, const NeardupHit (&hits)[kNeardupChunks]) {
    uint32_t count = 0, nearest = 0;
    for (uint32_t c = 0; c < kNeardupChunks && c * 32 < s.bands; c++) {
        uint32_t other = hits[c].depends ? hits[c].record + 1 : 0;
        uint32_t same = __match_any_sync(0xffffffffu, other), lower = (1u << neardup_lane()) - 1;
        bool first = other != 0 && (same & lower) == 0;
        uint32_t firsts = __ballot_sync(0xffffffffu, first);
        if (first) s.edges[record * s.bands + count + static_cast<uint32_t>(__popc(firsts & lower))] = other - 1;
        count += static_cast<uint32_t>(__popc(firsts));
        nearest = max(nearest, reduce_max(other));
    }
    if (neardup_lane() == 0) s.edge_count[record] = count;
    return nearest == 0 ? record : nearest - 1;
}

// Finds the records that a record depends on, and its least known label, which is its own position if none is known.
static __global__ void __launch_bounds__(kNeardupThreads) neardup_guess(NeardupStep s) {
    uint32_t record = neardup_warp(), lane = neardup_lane();
    if (record >= s.records) return;
    NeardupPosition own = s.positions[record], labels[kNeardupChunks];
    NeardupHit hits[kNeardupChunks];
    bool flags[kNeardupChunks];
    for (uint32_t c = 0; c < kNeardupChunks; c++) {
        hits[c] = neardup_hit(s, record, c * 32 + lane, s.counters->cut);
        flags[c] = hits[c].hit && !hits[c].depends;
        labels[c] = hits[c].label;
    }
    if (neardup_ballot(flags) != 0) own = neardup_least(labels, flags);
    uint32_t nearest = neardup_store_edges(s, record, hits);
    if (lane != 0) return;
    s.known[record] = own;
    s.winner[record] = record, s.nearest[record] = nearest, s.pointer[record] = nearest;
    if (nearest != record) s.waiting[atomicAdd(&s.counters->waiting, 1u)] = record;
}

#endif

} // namespace millrace
