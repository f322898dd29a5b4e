// The hash table of a generation in the index of near-duplicates: from keys to labels (internal/operator/neardup).
//
// It uses open addressing, with buckets of four slots. A key belongs in its home bucket, or in the first later bucket with an empty slot.
// A lookup therefore reads whole sectors of 32 bytes, and ends at a bucket with an empty slot. Threads insert keys by compare-and-swap.
// Lookups and insertions may run at the same time, but nothing else may run during removals. A table is at most four fifths full, so there
// is always an empty slot.
#pragma once

#include <stdint.h>

#include "math/both.cuh"

namespace millrace {

// Identifies a record: the sequence of its message, from 1, and its number in the message. Positions are in the order of
// the stream.
struct alignas(16) NeardupPosition {
    uint64_t sequence, record;
};

MILLRACE_BOTH bool operator<(const NeardupPosition &a, const NeardupPosition &b) {
    return a.sequence < b.sequence || (a.sequence == b.sequence && a.record < b.record);
}
MILLRACE_BOTH bool operator==(const NeardupPosition &a, const NeardupPosition &b) {
    return a.sequence == b.sequence && a.record == b.record;
}

constexpr uint32_t kNeardupSlots = 4; // slots per bucket

// A generation. A label is an index into positions. Labels from first_record on belong to the generation's records. Lower labels
// are those that records carried over from the old generation. Labels are stored inverted, so that a table of zeros is empty, and
// the least label is the greatest stored value.
struct NeardupTable {
    uint8_t *memory; // all keys, then all labels
    NeardupPosition *positions;
    uint64_t buckets;
    uint64_t multiplier; // odd and random, so that nobody can choose texts whose keys collide
    uint32_t first_record;
};

MILLRACE_BOTH uint64_t neardup_buckets(uint64_t keys) {
    return (keys * 5 + 4 * kNeardupSlots - 1) / (4 * kNeardupSlots);
}

constexpr uint32_t kNeardupAbsent = ~0u; // no label

// These functions return the addresses of a slot's key and of its label. A key of 0 means that the slot is empty.
MILLRACE_BOTH unsigned long long *neardup_key_at(const NeardupTable &table, uint64_t slot) {
    return reinterpret_cast<unsigned long long *>(table.memory) + slot;
}
MILLRACE_BOTH uint32_t *neardup_label_at(const NeardupTable &table, uint64_t slot) {
    return reinterpret_cast<uint32_t *>(table.memory + table.buckets * kNeardupSlots * sizeof(uint64_t)) + slot;
}

// The size of a table's memory in bytes.
MILLRACE_BOTH uint64_t neardup_table_bytes(uint64_t buckets) {
    return buckets * kNeardupSlots * (sizeof(uint64_t) + sizeof(uint32_t));
}

#if defined(__CUDACC__) || defined(MILLRACE_EMULATED)

// Finds a key, and returns whether the table contains it. If not and `insert` is true, the function inserts the key. *slot is the
// key's slot.
__device__ inline bool neardup_find(const NeardupTable &table, unsigned long long key, bool insert, uint64_t *slot) {
    uint64_t bucket = __umul64hi(key * table.multiplier, table.buckets);
    for (;;) {
        unsigned long long *first = neardup_key_at(table, bucket * kNeardupSlots);
        ulonglong2 low = reinterpret_cast<const ulonglong2 *>(first)[0], high = reinterpret_cast<const ulonglong2 *>(first)[1];
        unsigned long long keys[kNeardupSlots] = {low.x, low.y, high.x, high.y};
        UNROLL(4)
        for (uint32_t i = 0; i < kNeardupSlots; i++) {
            // Another thread may have filled the slot since it was read, but a slot never loses its key.
            if (keys[i] == 0 && insert) keys[i] = atomicCAS(first + i, 0ull, key);
            *slot = bucket * kNeardupSlots + i;
            if (keys[i] == key) return true;
            if (keys[i] == 0) return false;
        }
        bucket = bucket + 1 == table.buckets ? 0 : bucket + 1;
    }
}

// These functions return and write the label in a slot. The label is kNeardupAbsent if none was written.
__device__ inline uint32_t neardup_label(const NeardupTable &table, uint64_t slot) { return ~*neardup_label_at(table, slot); }
__device__ inline void neardup_set_label(const NeardupTable &table, uint64_t slot, uint32_t label) {
    *neardup_label_at(table, slot) = ~label;
}

// Lowers the label in a slot to at most `label`.
__device__ inline uint32_t neardup_lower(const NeardupTable &table, uint64_t slot, uint32_t label) {
    return ~atomicMax(neardup_label_at(table, slot), ~label);
}

#endif

} // namespace millrace
