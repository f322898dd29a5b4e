// The host's side of the index of near-duplicates: its memory, its generations and the order of its kernels. The host counts records
// itself, so calls only enqueue work.
//
// Queue is a stream of a GPU. In tests, it executes each call at once. Its functions return a millrace_status:
//
//   clear(memory, bytes)                             sets bytes to 0
//   copy(to, from, bytes)                            copies on the device
//   run(name, blocks, threads, kernel, arguments...) launches a kernel
//   run_together(name, blocks, threads, kernel, argument) launches a kernel whose blocks wait for each other
#pragma once

#include "neardup_finish.cuh"
#include "neardup_settle.cuh"

namespace millrace {

constexpr uint32_t kMostNeardupBands = 64, kMostNeardupRecords = 1u << 30, kMostNeardupBatch = 1u << 20;

// The size of an index.
struct NeardupShape {
    uint32_t bands;
    uint64_t records; // maximum number of records in a generation
    uint64_t batch;   // maximum number of records in a batch; at most `records`
};

// Divides memory into aligned parts. If the address is 0, it only computes the total size.
struct NeardupParts {
    uint64_t at;
    template <class T>
    void take(T **part, uint64_t count) {
        at = (at + 255) / 256 * 256;
        *part = reinterpret_cast<T *>(at);
        at += count * sizeof(T);
    }
};

// The parts of an index's memory.
struct NeardupMemory {
    NeardupTable tables[3]; // two generations, and the spare table for records of a batch that begin the next generation
    NeardupCounters *counters;
    NeardupStep step; // contains the addresses of the scratch memory
    uint64_t end;
};

inline void take_neardup_table(NeardupParts *parts, NeardupTable *table, uint32_t bands, uint64_t records, uint64_t carried) {
    table->buckets = neardup_buckets(records * bands);
    table->first_record = static_cast<uint32_t>(carried);
    parts->take(&table->memory, neardup_table_bytes(table->buckets));
    parts->take(&table->positions, carried + records);
}

// The maximum number of labels that the records of one batch carry over.
inline uint64_t neardup_spare_carried(const NeardupShape &shape) {
    uint64_t most = shape.batch * shape.bands;
    return most < shape.records ? most : shape.records;
}

inline NeardupMemory neardup_memory(const NeardupShape &shape, uint64_t address) {
    NeardupMemory m = {};
    NeardupParts parts = {address};
    uint64_t keys = shape.batch * shape.bands;
    parts.take(&m.counters, 1);
    for (uint32_t g = 0; g < 2; g++) take_neardup_table(&parts, &m.tables[g], shape.bands, shape.records, shape.records);
    take_neardup_table(&parts, &m.tables[2], shape.bands, shape.batch, neardup_spare_carried(shape));
    NeardupStep &s = m.step;
    parts.take(&s.slots, keys), parts.take(&s.former, keys), parts.take(&s.labels, keys), parts.take(&s.edges, keys);
    parts.take(&s.inserted, shape.batch), parts.take(&s.copied, shape.batch), parts.take(&s.known, shape.batch);
    for (uint32_t **part : {&s.carries, &s.winner, &s.nearest, &s.pointer, &s.edge_count, &s.waiting}) parts.take(part, shape.batch);
    s.bands = shape.bands, s.limit = shape.records, s.counters = m.counters;
    while ((1u << s.band_bits) <= shape.bands) s.band_bits++;
    m.end = parts.at;
    return m;
}

// A batch of records. The addresses may be in pinned host memory.
struct NeardupBatch {
    uint64_t records;
    const unsigned long long *keys;
    const NeardupPosition *positions;
    uint8_t *result;
};

// The arrangement of threads that settles waiting records. The results don't depend on it.
struct NeardupSettling {
    uint32_t threads;   // of a block, at most kNeardupBlock
    uint32_t blocks;    // maximum number of blocks, which must be able to run at the same time
    uint32_t one_block; // maximum number of waiting records that one block settles alone
};

template <class Queue>
class NeardupIndex {
  public:
    // `address` is the address of neardup_memory(shape, 0).end bytes. The multipliers are odd random numbers.
    NeardupIndex(const NeardupShape &shape, uint64_t address, const NeardupSettling &settling, const uint64_t (&multipliers)[3])
        : shape_(shape), address_(address), settling_(settling), memory_(neardup_memory(shape, address)) {
        for (uint32_t g = 0; g < 3; g++) memory_.tables[g].multiplier = multipliers[g];
        memory_.step.one_block = settling.one_block;
    }

    // Clears the memory. begin must be the first call.
    int32_t begin(Queue &queue) { return queue.clear(reinterpret_cast<void *>(address_), memory_.end - address_); }

    // Returns the number of records of the young generation, without the records of the last batch that begin the next generation.
    uint64_t filled() const { return filled_; }
    bool undoable() const { return undoable_; }

    // Decides on a batch of 1 to shape.batch records.
    int32_t apply(Queue &queue, const NeardupBatch &batch) {
        if (int32_t s = commit(queue)) return s;
        uint64_t room = shape_.records - filled_;
        parts_[0] = batch.records < room ? batch.records : room, parts_[1] = batch.records - parts_[0];
        undoable_ = true;
        if (int32_t s = step(queue, batch, 0, young_, 1 - young_)) return s;
        return step(queue, batch, 1, kSpare, young_);
    }

    // Removes the last batch, which must be undoable.
    int32_t undo(Queue &queue) {
        undoable_ = false;
        if (parts_[0] != 0) {
            if (int32_t s = queue.run("neardup_remove", blocks(steps_[0].records * shape_.bands), kNeardupThreads, neardup_remove, steps_[0])) return s;
        }
        filled_ -= parts_[0];
        bool next = parts_[1] != 0;
        parts_[0] = parts_[1] = 0;
        return next ? empty(queue, kSpare) : 0;
    }

    // Applies rows of a log that begin with record number `first` of their generation. The caller sets the addresses and numbers in `rows`,
    // and replay sets the rest. `first` must be filled(), or 0 if the generation is full.
    int32_t replay(Queue &queue, uint64_t first, NeardupReplay rows) {
        if (int32_t s = commit(queue)) return s;
        if (first == 0 && filled_ == shape_.records) {
            if (int32_t s = turn(queue)) return s;
        }
        const NeardupTable &table = memory_.tables[young_];
        rows.young = table, rows.counters = memory_.counters, rows.generation = young_;
        rows.first_label = table.first_record + static_cast<uint32_t>(filled_);
        filled_ += rows.records;
        uint32_t items = rows.keys > rows.records ? rows.keys : rows.records;
        return queue.run("neardup_insert", blocks(items > rows.carried ? items : rows.carried), kNeardupThreads, neardup_insert, rows);
    }

    // Makes the last batch permanent: its records of the next generation move into that generation.
    int32_t commit(Queue &queue) {
        uint64_t moved = parts_[1];
        parts_[0] = parts_[1] = 0;
        undoable_ = false;
        if (moved == 0) return 0;
        if (int32_t s = turn(queue)) return s;
        const NeardupTable &from = memory_.tables[kSpare], &to = memory_.tables[young_];
        filled_ = moved;
        if (int32_t s = queue.run("neardup_move", blocks(from.buckets * kNeardupSlots), kNeardupThreads, neardup_move, from, to,
                                  kSpare, young_, memory_.counters)) {
            return s;
        }
        uint64_t carried = neardup_spare_carried(shape_);
        if (int32_t s = queue.copy(to.positions, from.positions, carried * sizeof(NeardupPosition))) return s;
        if (int32_t s = queue.copy(to.positions + to.first_record, from.positions + from.first_record, moved * sizeof(NeardupPosition))) return s;
        return empty(queue, kSpare);
    }

  private:
    static constexpr uint32_t kSpare = 2;

    static uint64_t blocks(uint64_t items) { return (items + kNeardupThreads - 1) / kNeardupThreads; }

    int32_t empty(Queue &queue, uint32_t generation) {
        const NeardupTable &table = memory_.tables[generation];
        if (int32_t s = queue.clear(&memory_.counters->carried[generation], sizeof(uint64_t))) return s;
        return queue.clear(table.memory, neardup_table_bytes(table.buckets));
    }

    // Begins a generation without records. The old generation is dropped.
    int32_t turn(Queue &queue) {
        young_ = 1 - young_;
        filled_ = 0;
        return empty(queue, young_);
    }

    // Returns the arguments for the first or second part of a batch.
    NeardupStep prepare(const NeardupBatch &batch, uint32_t part, uint32_t young, uint32_t old) const {
        uint64_t from = part == 0 ? 0 : parts_[0], keys = from * shape_.bands;
        NeardupStep s = memory_.step;
        s.young = memory_.tables[young], s.old = memory_.tables[old], s.generation = young;
        s.first_label = s.young.first_record + static_cast<uint32_t>(part == 0 ? filled_ : 0);
        s.records = static_cast<uint32_t>(parts_[part]), s.batch_rows = static_cast<uint32_t>(batch.records);
        s.first_row = static_cast<uint32_t>(from), s.result = batch.result;
        s.keys = batch.keys + keys, s.positions = batch.positions + from;
        for (uint32_t **by_key : {&s.former, &s.labels, &s.edges}) *by_key += keys;
        for (uint32_t **by_record : {&s.carries, &s.winner, &s.nearest, &s.pointer, &s.edge_count, &s.waiting}) *by_record += from;
        s.slots += keys, s.inserted += from, s.copied += from, s.known += from;
        return s;
    }

    int32_t step(Queue &queue, const NeardupBatch &batch, uint32_t part, uint32_t young, uint32_t old) {
        if (parts_[part] == 0) return 0;
        NeardupStep s = steps_[part] = prepare(batch, part, young, old);
        if (part == 0) filled_ += s.records;
        uint64_t warps = (s.records + kNeardupWarps - 1) / kNeardupWarps;
        uint64_t together = (s.records + settling_.threads - 1) / settling_.threads;
        if (s.records <= settling_.one_block) together = 1;
        if (together > settling_.blocks) together = settling_.blocks;
        if (int32_t e = queue.run("neardup_probe", blocks(s.records * shape_.bands), kNeardupThreads, neardup_probe, s)) return e;
        if (int32_t e = queue.run("neardup_gather", warps, kNeardupThreads, neardup_gather, s)) return e;
        if (int32_t e = queue.run("neardup_carry", 1, settling_.threads, neardup_carry, s)) return e;
        if (int32_t e = queue.run("neardup_guess", warps, kNeardupThreads, neardup_guess, s)) return e;
        if (int32_t e = queue.run_together("neardup_settle", together, settling_.threads, neardup_settle, s)) return e;
        return queue.run("neardup_finish", warps, kNeardupThreads, neardup_finish, s);
    }

    NeardupShape shape_;
    uint64_t address_;
    NeardupSettling settling_;
    NeardupMemory memory_;
    uint32_t young_ = 0;
    uint64_t filled_ = 0;
    uint64_t parts_[2] = {}; // numbers of the last batch's records in the young generation and in the spare table
    NeardupStep steps_[2] = {};
    bool undoable_ = false;
};

} // namespace millrace
