// The kernels of quality.
//
// A warp processes one record. A record of more than `longest_whole` bytes is divided into segments, one for each tile of the
// batch. A record of many megabytes is therefore spread over the whole GPU. A segment begins after a newline. No word, URL,
// phrase or line continues over that point, so the record's counters are the sums of the segments' counters. Only the paragraph
// that continues needs a merge. A long record without newlines has one segment.
//
//   quality_scan     all counters except those of repeated pieces, and the statuses
//   quality_settle   for long records: merges the paragraphs of segments, and prepares the set of pieces
//   quality_repeats  the counters of repeated pieces
//
// With n-grams, two more kernels follow. In these kernels, a block processes one record.
//
//   quality_ngrams       the counters of duplicate n-grams of records with few words, whose words fit in shared memory
//   quality_long_ngrams  the counters of duplicate n-grams of the other records, with larger blocks
#pragma once

#include "math/ragged.cuh"
#include "quality_ngrams.cuh"
#include "quality_repeats.cuh"
#include "quality_scan.cuh"

namespace millrace {

constexpr uint32_t kQualityWarps = 4, kQualityThreads = 32 * kQualityWarps;
// Blocks of the scan per multiprocessor. With 8 blocks, the compiler gives a thread 64 registers and spills 18 to memory. With 7
// blocks, it gives a thread 72 registers and spills 2. Nevertheless, the scan of 2 KiB records is 9 % faster with 8 blocks on an
// H100: 16 MiB need 1.9 rounds of all multiprocessors instead of 2.2.
constexpr uint32_t kQualityBlocks = 8;

constexpr uint32_t kQualityTile = 8 << 10, kQualityWhole = 2 * kQualityTile; // bytes
constexpr uint32_t kSharedEntries = 256; // entries of a set in shared memory

// A batch, and the addresses of its results and scratch.
struct QualityWork {
    const uint8_t *batch;
    const uint32_t *offsets;
    uint32_t rows, bytes;
    uint32_t tile, longest_whole; // bytes; longest_whole is at least 2 * tile
    uint32_t tiles;               // 0 if no record is longer than longest_whole
    uint32_t seed;                // seed of the hashes
    uint32_t fields;              // fields of a row's result: kQualityFields or kQualityAllFields
    uint32_t *result;             // `fields` per row; zeros if tiles is not 0
    uint8_t *status;              // one per row; zeros if tiles is not 0
    unsigned long long *entries;  // quality_entries(bytes, rows)
    uint32_t *ends;               // bits such as kCut, two words per tile: for its segment, and for the long record that begins in it
    uint32_t *trimmed;            // two per tile: QualityRange of the long record that begins in it

    __device__ uint32_t *result_of(uint32_t row) const { return result + static_cast<uint64_t>(row) * fields; }
    __device__ QualityText text(uint32_t row) const { return {batch, offsets[row], offsets[row + 1]}; }
    __device__ bool is_long(const QualityText &text) const { return tiles != 0 && text.end - text.begin > longest_whole; }
    __device__ uint32_t tile_of(uint32_t position) const { return position / tile; }
};

// Returns the number of a batch's entries of all sets. Each record's set has its bytes + kSpareEntries.
MILLRACE_BOTH uint64_t quality_entries(uint64_t bytes, uint64_t rows) { return bytes + rows * kSpareEntries; }

// A part of a record for one warp.
struct QualityPart {
    uint32_t row;
    QualityText text;
    QualityRange range; // may be empty for a whole record; an empty range of a segment needs no work
    bool whole;         // whether the part is the whole record
    bool any;           // whether the warp has something to do
};

// Returns the part of warp number `unit`. Each of the first `rows` warps gets a record, and each of the others gets a tile.
__device__ inline QualityPart quality_part(const QualityWork &work, uint32_t unit) {
    QualityPart part = {};
    if (unit < work.rows) {
        part.row = unit, part.text = work.text(unit), part.any = true;
        part.whole = !work.is_long(part.text);
        uint32_t end = part.whole ? part.text.end : (work.tile_of(part.text.begin) + 1) * work.tile;
        part.range = {part.text.begin, end};
        return part;
    }
    if (unit - work.rows >= work.tiles) return part;
    uint32_t position = (unit - work.rows) * work.tile;
    part.row = row_at(work.offsets, 0, work.rows - 1, position), part.text = work.text(part.row);
    part.any = work.is_long(part.text) && position > part.text.begin;
    part.range = {position, min(position + work.tile, part.text.end)};
    return part;
}

// Returns the number of this warp among all warps of the grid.
__device__ inline uint32_t unit_of_warp() { return blockIdx.x * kQualityWarps + threadIdx.x / 32; }

// Returns the first position of a range that follows a newline and doesn't contain a newline, or kNowhere.
__device__ inline uint32_t segment_start(const QualityText &text, QualityRange range) {
    for (uint32_t start = range.from; start < range.to; start += 32) {
        uint32_t position = start + lane_id();
        uint32_t found = ballot(position < range.to && text.at(position - 1) == '\n' && text.at(position) != '\n');
        if (found != 0) return start + lowest_bit(found);
    }
    return kNowhere;
}

// Stores the totals of a whole record.
__device__ inline void store_whole(const QualityWork &work, uint32_t row, QualityScan *scan) {
    scan->tally.add(kParagraphs, 1);
    scan->tally.add(kPolicyParagraphs, scan->paragraphs.policy ? 1 : 0);
    scan->tally.add(kLoremParagraphs, scan->paragraphs.lorem ? 1 : 0);
    bool invalid = scan->wide.invalid;
    if (lane_id() < kScanFields) work.result_of(row)[lane_id()] = invalid ? 0 : scan->tally.total;
    if (lane_id() == 0) work.status[row] = invalid ? kInvalidUtf8 : 0;
}

// Adds the totals of a segment to its record.
__device__ inline void add_segment(const QualityWork &work, const QualityPart &part, QualityScan *scan, uint32_t *ends) {
    if (part.range.from == part.text.begin) scan->tally.add(kParagraphs, 1);
    uint32_t *field = work.result_of(part.row) + lane_id();
    if (lane_id() == kLongestWord) {
        atomicMax(field, scan->tally.total);
    } else if (lane_id() < kScanFields && scan->tally.total != 0) {
        atomicAdd(field, scan->tally.total);
    }
    if (lane_id() != 0) return;
    *ends = scan->paragraphs.summary();
    if (scan->wide.invalid) work.status[part.row] = kInvalidUtf8;
}

__device__ inline void scan_part(const QualityWork &work, const QualityPart &part, const uint32_t *classes) {
    bool first = part.range.from == part.text.begin;
    uint32_t *ends = part.whole ? nullptr : work.ends + 2 * work.tile_of(part.range.from) + (first ? 1 : 0);
    uint32_t from = first ? part.range.from : segment_start(part.text, part.range);
    if (from == kNowhere) { // the previous segment continues
        if (lane_id() == 0) *ends = 0;
        return;
    }
    QualityScan scan(part.text, classes);
    scan.run(from, part.range.to);
    if (part.whole) {
        store_whole(work, part.row, &scan);
    } else {
        add_segment(work, part, &scan, ends);
    }
}

static __global__ void __launch_bounds__(kQualityThreads, kQualityBlocks) quality_scan(QualityWork work) {
    __shared__ uint32_t classes[128];
    for (uint32_t i = threadIdx.x; i < 128; i += kQualityThreads) classes[i] = quality_classes.of[i];
    __syncthreads();
    QualityPart part = quality_part(work, unit_of_warp());
    if (part.any) scan_part(work, part, classes);
}

// Returns the maximum number of pieces that are entered into a record's set.
__device__ inline uint32_t quality_pieces(const uint32_t *fields) { return fields[kNewlines] + 1 + 2 * fields[kParagraphs]; }

// Counts the paragraphs with phrases that more than one segment of a long record contains.
__device__ inline void merge_paragraphs(const QualityWork &work, const QualityText &text, uint32_t *fields) {
    uint32_t first = work.tile_of(text.begin), last = work.tile_of(text.end - 1), policy = 0, lorem = 0;
    uint32_t open = work.ends[2 * first + 1];
    for (uint32_t tile = first + 1; tile <= last; tile++) {
        uint32_t ends = work.ends[2 * tile];
        if (ends & kCut) {
            policy += ((open & kTailPolicy) != 0 || (ends & kHeadPolicy) != 0) ? 1 : 0;
            lorem += ((open & kTailLorem) != 0 || (ends & kHeadLorem) != 0) ? 1 : 0;
            open = 0;
        }
        open |= ends;
    }
    fields[kPolicyParagraphs] += policy + ((open & kTailPolicy) != 0 ? 1 : 0);
    fields[kLoremParagraphs] += lorem + ((open & kTailLorem) != 0 ? 1 : 0);
}

__device__ inline QualitySet set_of(const QualityWork &work, uint32_t row, const QualityText &text, uint32_t pieces) {
    return {work.entries + text.begin + static_cast<uint64_t>(row) * kSpareEntries, set_capacity(text.end - text.begin, pieces)};
}

static __global__ void __launch_bounds__(kQualityThreads) quality_settle(QualityWork work) {
    uint32_t row = unit_of_warp();
    if (row >= work.rows) return;
    QualityText text = work.text(row);
    if (!work.is_long(text)) return;
    uint32_t *fields = work.result_of(row);
    if (work.status[row] != 0) {
        if (lane_id() < kScanFields) fields[lane_id()] = 0;
        return;
    }
    if (lane_id() == 0) merge_paragraphs(work, text, fields);
    set_of(work, row, text, quality_pieces(fields)).clear();
    QualityRange trimmed = trim(text);
    uint32_t *place = work.trimmed + 2 * work.tile_of(text.begin);
    if (lane_id() == 0) place[0] = trimmed.from, place[1] = trimmed.to;
}

// Counts the repeated pieces of a part. `shared` has kSharedEntries entries for this warp.
__device__ inline void repeats_of_part(const QualityWork &work, const QualityPart &part, unsigned long long *shared) {
    uint32_t *fields = work.result_of(part.row), *own = fields + kScanFields + lane_id();
    bool counts = lane_id() < kQualityFields - kScanFields;
    if (work.status[part.row] != 0) {
        if (part.whole && counts) *own = 0;
        return;
    }
    QualitySet set = set_of(work, part.row, part.text, quality_pieces(fields));
    QualityRange trimmed;
    if (part.whole) {
        if (set.capacity <= kSharedEntries) set.entries = shared;
        set.clear();
        trimmed = trim(part.text);
    } else {
        const uint32_t *place = work.trimmed + 2 * work.tile_of(part.text.begin);
        trimmed = {place[0], place[1]};
    }
    QualityRepeats repeats(part.text, set, work.seed, trimmed);
    repeats.run(part.range, fields[kParagraphs]);
    if (!counts) return;
    if (part.whole) {
        *own = repeats.total;
    } else if (repeats.total != 0) {
        atomicAdd(own, repeats.total);
    }
}

static __global__ void __launch_bounds__(kQualityThreads) quality_repeats(QualityWork work) {
    __shared__ unsigned long long entries[kQualityWarps][kSharedEntries];
    QualityPart part = quality_part(work, unit_of_warp());
    if (part.any) repeats_of_part(work, part, entries[threadIdx.x / 32]);
}

constexpr uint32_t kNgramThreads = 128, kLongNgramThreads = 1024;
constexpr uint32_t kLongNgramBlocks = 2; // per multiprocessor

// Maximum number of words of a record that is processed in shared memory. With 512, quality_ngrams is 10 % faster on an H100 for records of
// 2 KiB with about 340 words, because more blocks run at once. However, records of 1024 words take five times as long.
constexpr uint32_t kSharedWords = 1024;

// The arguments of quality, and the arguments of the search for n-grams.
struct QualityNgramsWork {
    QualityWork all;
    uint32_t shared_words; // at most kSharedWords
    uint32_t *memory;      // ngrams_memory(bytes, rows); not used if no record has more than shared_words words
    uint32_t *waiting;     // rows + 1 integers: the number of records for quality_long_ngrams, initially 0, and then these records
};

// Returns the number of integers of memory for the words of a batch. Each record has its own part.
MILLRACE_BOTH uint64_t ngrams_memory(uint64_t bytes, uint64_t rows) { return kNgramMemory / 2 * (bytes + rows); }

// Stores the totals of a record after a search.
__device__ inline void store_ngrams(const QualityNgramsWork &work, uint32_t row, const NgramShared &shared) {
    if (threadIdx.x < kGramCounters) work.all.result_of(row)[kDuplicate5gramChars + threadIdx.x] = shared.totals[threadIdx.x];
}

static __global__ void __launch_bounds__(kNgramThreads) quality_ngrams(QualityNgramsWork work) {
    __shared__ uint32_t memory[kNgramMemory * kSharedWords];
    __shared__ NgramShared shared;
    uint32_t row = blockIdx.x, *fields = work.all.result_of(row), words = fields[kWords]; // 0 if the record isn't UTF-8
    if (words > work.shared_words) {
        if (threadIdx.x == 0) work.waiting[1 + atomicAdd(work.waiting, 1)] = row;
        return;
    }
    if (words < kLeastGram) {
        if (threadIdx.x < kGramCounters) fields[kDuplicate5gramChars + threadIdx.x] = 0;
        return;
    }
    NgramSearch<kNgramThreads>(work.all.text(row), words, memory, &shared, work.all.seed).run();
    __syncthreads();
    store_ngrams(work, row, shared);
}

template <uint32_t kThreads>
static __global__ void __launch_bounds__(kThreads) quality_long_ngrams(QualityNgramsWork work) {
    __shared__ NgramShared shared;
    for (uint32_t i = blockIdx.x; i < work.waiting[0]; i += gridDim.x) {
        uint32_t row = work.waiting[1 + i];
        QualityText text = work.all.text(row);
        uint32_t *memory = work.memory + kNgramMemory / 2 * (static_cast<uint64_t>(text.begin) + row);
        NgramSearch<kThreads>(text, work.all.result_of(row)[kWords], memory, &shared, work.all.seed).run();
        __syncthreads();
        store_ngrams(work, row, shared);
        __syncthreads();
    }
}

} // namespace millrace
