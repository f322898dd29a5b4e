// Passes: code that works on a whole batch before the record code, block by block. Use passes if records share work, or
// if work should be divided by bytes instead of records.
#pragma once

#include "millrace/record.cuh"
#include "millrace/scratch.cuh"
#include "millrace/table.cuh"
#include "millrace/team.cuh"

namespace millrace {

// ---- the input of a pass ----

// All records of a batch, back to back. A read outside of the batch returns 0 and fails the batch.
class Batch {
public:
    MILLRACE_DEVICE Batch(const millrace_batch &batch, uint32_t block, uint32_t blocks)
        : all_(reinterpret_cast<const uint8_t *>(batch.data), batch.bytes),
          offsets_(reinterpret_cast<const uint32_t *>(batch.offsets)), rows_(batch.rows), block_(block), blocks_(blocks),
          out_of_bounds_(false) {}

    // block returns the number of this block. blocks returns the number of blocks in the pass.
    MILLRACE_DEVICE uint32_t block() const { return block_; }
    MILLRACE_DEVICE uint32_t blocks() const { return blocks_; }

    MILLRACE_DEVICE uint32_t records() const { return rows_; } // at least 1
    MILLRACE_DEVICE uint32_t size() const { return all_.size(); } // size of all records, in bytes

    MILLRACE_DEVICE uint8_t operator[](uint32_t i) const { return all_[i]; }

    // Returns the little-endian number at position `at`, which need not be aligned. The number may span several records.
    template <class T>
    MILLRACE_DEVICE T load(uint32_t at) const { return all_.template load<T>(at); }

    MILLRACE_DEVICE const uint8_t *data() const { return all_.data(); }

    // Returns the position of a record's first byte. start(records()) is equal to size().
    MILLRACE_DEVICE uint32_t start(uint32_t row) const {
        if (kChecked && row > rows_) {
            out_of_bounds_ = true;
            return size();
        }
        return offsets_[row];
    }

    // Returns the number of the record that contains the byte at position `at`. The search is shorter if the caller passes a range of
    // records, from `first` to `end` - 1, that contains the record.
    MILLRACE_DEVICE uint32_t row_of(uint32_t at) const { return row_of(at, 0, rows_); }
    MILLRACE_DEVICE uint32_t row_of(uint32_t at, uint32_t first, uint32_t end) const {
        if (kChecked && (at >= size() || end > rows_)) {
            out_of_bounds_ = true;
            return 0;
        }
        while (end - first > 1) { // start(first) <= at; the last such record isn't empty
            uint32_t middle = first + (end - first) / 2;
            if (offsets_[middle] <= at) first = middle;
            else end = middle;
        }
        return first;
    }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_ || all_.out_of_bounds_occurred(); }

private:
    Record all_;
    const uint32_t *offsets_;
    uint32_t rows_, block_, blocks_;
    mutable bool out_of_bounds_;
};

// A record in an operator with scratch memory.
template <class S>
class RecordWithScratch : public Record {
public:
    S &scratch;

    MILLRACE_DEVICE RecordWithScratch(const Record &record, S &of, uint32_t row, uint32_t start)
        : Record(record), scratch(of), row_(row), start_(start) {}

    // row returns the number of the record in the batch. start returns the position of its first byte in the batch. Use these
    // values only to find the output of passes in scratch memory. A result that depends on them is wrong.
    MILLRACE_DEVICE uint32_t row() const { return row_; }
    MILLRACE_DEVICE uint32_t start() const { return start_; }

private:
    uint32_t row_, start_;
};

template <class S, bool kHasScratch = (S::internal_count_ > 0)>
struct RecordOf {
    using Type = Record;
    static MILLRACE_DEVICE Record open(const Record &record, S &, uint32_t, uint32_t) { return record; }
};
template <class S>
struct RecordOf<S, true> {
    using Type = RecordWithScratch<S>;
    static MILLRACE_DEVICE Type open(const Record &record, S &scratch, uint32_t row, uint32_t start) {
        return Type(record, scratch, row, start);
    }
};

// ---- declarations ----

// The number of a pass's blocks: ceil((constant + per_record * records + per_byte * bytes) / share).
struct Grid {
    uint32_t constant, per_record, per_byte, share;
};

// Returns a grid with one block for each `bytes` bytes or `records` records of the batch, or with `count` blocks for
// any batch.
MILLRACE_CONSTEXPR Grid per_bytes(uint32_t bytes) { return Grid{0, 0, 1, bytes}; }
MILLRACE_CONSTEXPR Grid per_records(uint32_t records) { return Grid{0, 1, 0, records}; }
MILLRACE_CONSTEXPR Grid blocks(uint32_t count) { return Grid{count, 0, 0, 1}; }

constexpr uint32_t kMostConstantBlocks = 1 << 16;

MILLRACE_CONSTEXPR bool good_grid(Grid g) {
    uint64_t sum = static_cast<uint64_t>(g.per_record) + g.per_byte;
    return g.share > 0 && sum <= g.share && g.constant <= kMostConstantBlocks && g.constant + sum > 0;
}

template <int N>
struct Passes : Passes<N - 1> {};

struct NoPasses {
    static constexpr uint32_t internal_count_ = 0;
    static MILLRACE_CONSTEXPR void internal_describe_(millrace_pass *) {}
};

MILLRACE_CONSTEXPR millrace_pass describe_pass(const char *name, uint32_t threads, Grid grid) {
    millrace_pass p{};
    copy_text(p.name, name);
    p.threads = threads, p.constant = grid.constant, p.per_row = grid.per_record, p.per_byte = grid.per_byte, p.share = grid.share;
    return p;
}

// Returns the address of the first word of scratch memory. The word isn't 0 after a pass has accessed something outside its bounds.
MILLRACE_DEVICE uint32_t *fault_word(const millrace_batch &batch) { return reinterpret_cast<uint32_t *>(batch.scratch); }

// Runs one block of a pass.
template <class P, class S, class Team, class Code>
MILLRACE_DEVICE void run_block(const millrace_batch &batch, const P &params, uint32_t block, uint32_t blocks, const Team &team) {
    ScratchPlace place(batch);
    S scratch(place);
    const Batch all(batch, block, blocks);
    Code::run(all, params, scratch, team);
    if (kChecked && (all.out_of_bounds_occurred() || scratch.internal_out_of_bounds_() || params.internal_out_of_bounds_())) {
        Atomic::set_bits(fault_word(batch), 1u);
    }
}

} // namespace millrace

#ifdef MILLRACE_GPU

#define MILLRACE_PASS_ENTRY(N, name, threads)                                                                      \
    extern "C" __global__ void __launch_bounds__(threads) millrace_operator_pass_##name(                            \
        const __grid_constant__ millrace_batch batch,                                                               \
        const __grid_constant__ millrace::Block<millrace::Parameters<N>::internal_bytes_> block) {                  \
        const millrace::Parameters<N> params(block.bytes, batch.tables);                                            \
        const millrace::BlockTeam<threads> team;                                                                    \
        millrace::run_block<millrace::Parameters<N>, millrace::Scratch<N>, millrace::BlockTeam<threads>,            \
                            millrace_code_##name>(batch, params, blockIdx.x, gridDim.x, team);                      \
    }

#define MILLRACE_PASS_TEAM(threads) millrace::BlockTeam<threads>

#else

#define MILLRACE_PASS_ENTRY(N, name, threads)                                                                      \
    /* Runs the blocks from `first` up to, but not including, `end`. Calls for separate blocks may overlap. */      \
    extern "C" __attribute__((visibility("default"))) void millrace_operator_pass_##name(                           \
        const millrace_batch *batch, const void *block, uint32_t blocks, uint32_t first, uint32_t end) {            \
        const millrace::OneLane team;                                                                               \
        for (uint32_t i = first; i < end; i++) {                                                                    \
            const millrace::Parameters<N> params(static_cast<const uint8_t *>(block), batch->tables);               \
            millrace::run_block<millrace::Parameters<N>, millrace::Scratch<N>, millrace::OneLane, millrace_code_##name>( \
                *batch, params, i, blocks, team);                                                                   \
        }                                                                                                           \
    }

#define MILLRACE_PASS_TEAM(threads) millrace::OneLane

#endif

#define MILLRACE_PASS(name, threads, grid, batch, params, scratch, team) \
    MILLRACE_PASS_AT(millrace_pass_##name, name, threads, grid, batch, params, scratch, team)
#define MILLRACE_PASS_AT(N, name, threads, grid, batch, params, scratch, team)                                     \
    MILLRACE_BEGIN(N)                                                                                               \
    static_assert(millrace::good_name(#name), "pass " #name ": a name has lower-case letters, digits and "          \
                                              "underscores, and at most 31 characters");                            \
    static_assert((threads) % 32 == 0 && (threads) >= 32 && (threads) <= 1024,                                      \
                  "pass " #name ": give a multiple of 32 threads, at most 1024");                                   \
    static_assert(millrace::good_grid(grid), "pass " #name ": its grid has at most one block per record or byte, "  \
                                             "and at most 65536 for any batch");                                    \
    static_assert(millrace::Scratch<N>::internal_count_ > 0, "pass " #name ": declare what it fills with MILLRACE_SCRATCH before it"); \
    template <>                                                                                                     \
    struct millrace::Passes<N> : millrace::Passes<N - 1> {                                                          \
        using InternalBefore_ = millrace::Passes<N - 1>;                                                            \
        static constexpr uint32_t internal_count_ = InternalBefore_::internal_count_ + 1;                           \
        static MILLRACE_CONSTEXPR void internal_describe_(millrace_pass *all) {                                     \
            InternalBefore_::internal_describe_(all);                                                               \
            all[internal_count_ - 1] = millrace::describe_pass(#name, threads, grid);                               \
        }                                                                                                           \
    };                                                                                                              \
    MILLRACE_END(N)                                                                                                 \
    struct millrace_code_##name {                                                                                   \
        enum : uint32_t { millrace_teams = 1, millrace_lanes = (threads) };                                         \
        static MILLRACE_DEVICE void run(const millrace::Batch &, const millrace::Parameters<N> &, millrace::Scratch<N> &, \
                                        const MILLRACE_PASS_TEAM(threads) &);                                       \
    };                                                                                                              \
    MILLRACE_PASS_ENTRY(N, name, threads)                                                                           \
    MILLRACE_DEVICE void millrace_code_##name::run(                                                                 \
        [[maybe_unused]] const millrace::Batch &batch, [[maybe_unused]] const millrace::Parameters<N> &params,      \
        [[maybe_unused]] millrace::Scratch<N> &scratch, [[maybe_unused]] const MILLRACE_PASS_TEAM(threads) &team)
