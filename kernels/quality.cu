// quality: counters of a text from which the scores of heuristic filters follow, for every row of a ragged batch.
//
// runtime/builtin.cpp declares the operator. docs/quality.md defines the counters. Scratch has entries of 8 bytes for the sets of
// lines and paragraphs: one for each byte of the batch, and 16 for each row. If a record is divided, it also has 16 bytes for
// each tile. If n-grams are counted and a record may have more than kSharedWords words, 12 bytes for each byte and each row of
// the batch replace the sets. 4 bytes for each row follow.
#include <sys/random.h>

#include <algorithm>
#include <new>

#include "quality_kernels.cuh"
#include "runtime/builtin.hpp"
#include "runtime/description.hpp"
#include "runtime/operator.hpp"

namespace millrace {

namespace {

struct Quality {
    int32_t ordinal;
    ResultSize size;
    uint32_t seed; // seed of the hashes; results don't depend on it
    uint32_t multiprocessors;

    uint32_t fields() const { return size.stride / sizeof(uint32_t); }
    bool ngrams() const { return fields() == kQualityAllFields; }
};

int32_t quality_load(millrace_error *error) {
    if (int32_t s = load_kernel(quality_scan, "loading quality_scan", error)) return s;
    if (int32_t s = load_kernel(quality_settle, "loading quality_settle", error)) return s;
    if (int32_t s = load_kernel(quality_repeats, "loading quality_repeats", error)) return s;
    if (int32_t s = load_kernel(quality_ngrams, "loading quality_ngrams", error)) return s;
    return load_kernel(quality_long_ngrams<kLongNgramThreads>, "loading quality_long_ngrams", error);
}

int32_t make_instance(Quality *instance, millrace_error *error) {
    if (int32_t s = check(error, cudaSetDevice(instance->ordinal), "cudaSetDevice")) return s;
    if (getrandom(&instance->seed, sizeof instance->seed, 0) != sizeof instance->seed) {
        return fail(error, MILLRACE_UNAVAILABLE, 0, "quality: the system has no random numbers");
    }
    if (int32_t s = multiprocessors(instance->ordinal, &instance->multiprocessors, error)) return s;
    return quality_load(error);
}

int32_t quality_create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out,
                       millrace_error *error) {
    ResultSize size;
    if (int32_t s = bind_block(&kQualityDeclared.head, params, bytes, &size, error)) return s;
    Quality *instance = new (std::nothrow) Quality{ordinal, size, 0, 0};
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for quality");
    if (int32_t s = make_instance(instance, error)) {
        delete instance;
        return s;
    }
    *out = instance;
    return MILLRACE_OK;
}

int32_t quality_destroy(void *self, millrace_error *) {
    delete static_cast<Quality *>(self); // an instance has no resources on the device
    return MILLRACE_OK;
}

// Returns the number of tiles, or 0 if no record is divided. Batch is millrace_shape or millrace_launch.
template <class Batch>
uint32_t quality_tiles(const Batch &batch) {
    return batch.longest > kQualityWhole ? tile_count(static_cast<uint32_t>(batch.bytes), kQualityTile) : 0;
}

// The parts of the scratch memory of a batch: their starts in bytes. The sets and the memory for n-grams begin at 0.
struct QualityScratch {
    bool long_ngrams; // whether a record may have n-grams and too many words for shared memory
    uint64_t ends, waiting, end;
};

template <class Batch>
QualityScratch scratch_of(const Quality &instance, const Batch &batch) {
    QualityScratch scratch = {};
    scratch.long_ngrams = instance.ngrams() && most_words(batch.longest) > kSharedWords;
    scratch.ends = quality_entries(batch.bytes, batch.rows) * sizeof(uint64_t);
    if (scratch.long_ngrams) scratch.ends = std::max(scratch.ends, ngrams_memory(batch.bytes, batch.rows) * sizeof(uint32_t));
    scratch.waiting = scratch.ends + quality_tiles(batch) * 4 * sizeof(uint32_t);
    scratch.end = scratch.waiting + (scratch.long_ngrams ? (batch.rows + 1) * sizeof(uint32_t) : 0);
    return scratch;
}

int32_t quality_needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    const Quality *instance = static_cast<const Quality *>(self);
    if (int32_t s = check_shape(shape, error)) return s;
    needs->scratch = scratch_of(*instance, *shape).end;
    needs->result = layout_of(instance->size, shape->rows, shape->bytes).end;
    return MILLRACE_OK;
}

QualityWork work_of(const Quality &instance, const millrace_launch &args) {
    QualityWork work = {};
    work.batch = reinterpret_cast<const uint8_t *>(args.batch);
    work.offsets = reinterpret_cast<const uint32_t *>(args.offsets);
    work.rows = static_cast<uint32_t>(args.rows), work.bytes = static_cast<uint32_t>(args.bytes);
    work.tile = kQualityTile, work.longest_whole = kQualityWhole, work.tiles = quality_tiles(args);
    work.seed = instance.seed, work.fields = instance.fields();
    work.result = reinterpret_cast<uint32_t *>(args.result);
    work.status = reinterpret_cast<uint8_t *>(args.result) + layout_of(instance.size, args.rows, args.bytes).status;
    work.entries = reinterpret_cast<unsigned long long *>(args.scratch);
    work.ends = reinterpret_cast<uint32_t *>(args.scratch + scratch_of(instance, args).ends);
    work.trimmed = work.ends + 2 * work.tiles;
    return work;
}

uint32_t blocks_of_warps(uint64_t warps) { return static_cast<uint32_t>((warps + kQualityWarps - 1) / kQualityWarps); }

// Prepares the records that are divided.
int32_t settle(const QualityWork &work, cudaStream_t stream, millrace_error *error) {
    quality_settle<<<blocks_of_warps(work.rows), kQualityThreads, 0, stream>>>(work);
    return check_launch(error, "quality_settle");
}

int32_t launch_ngrams(const Quality &instance, const QualityWork &all, const millrace_launch &args, cudaStream_t stream, millrace_error *error) {
    QualityScratch scratch = scratch_of(instance, args);
    QualityNgramsWork work = {all, kSharedWords, reinterpret_cast<uint32_t *>(args.scratch),
                              reinterpret_cast<uint32_t *>(args.scratch + scratch.waiting)};
    if (scratch.long_ngrams) {
        if (int32_t s = check(error, cudaMemsetAsync(work.waiting, 0, sizeof(uint32_t), stream), "cudaMemsetAsync")) return s;
    }
    quality_ngrams<<<all.rows, kNgramThreads, 0, stream>>>(work);
    if (int32_t s = check_launch(error, "quality_ngrams")) return s;
    if (!scratch.long_ngrams) return MILLRACE_OK;
    quality_long_ngrams<kLongNgramThreads><<<std::min(all.rows, kLongNgramBlocks * instance.multiprocessors), kLongNgramThreads, 0, stream>>>(work);
    return check_launch(error, "quality_long_ngrams");
}

int32_t quality_launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Quality *instance = static_cast<const Quality *>(self);
    if (int32_t s = check_shape(args, error)) return s;
    if (args->rows == 0) return MILLRACE_OK;
    cudaStream_t stream = static_cast<cudaStream_t>(cuda_stream);
    QualityWork work = work_of(*instance, *args);
    uint32_t blocks = blocks_of_warps(args->rows + work.tiles);
    if (work.tiles != 0) { // the segments of a record add to the record's counters
        uint64_t end = layout_of(instance->size, args->rows, args->bytes).end;
        if (int32_t s = check(error, cudaMemsetAsync(work.result, 0, end, stream), "cudaMemsetAsync")) return s;
    }
    quality_scan<<<blocks, kQualityThreads, 0, stream>>>(work);
    if (int32_t s = check_launch(error, "quality_scan")) return s;
    if (work.tiles != 0) {
        if (int32_t s = settle(work, stream, error)) return s;
    }
    quality_repeats<<<blocks, kQualityThreads, 0, stream>>>(work);
    if (int32_t s = check_launch(error, "quality_repeats")) return s;
    return instance->ngrams() ? launch_ngrams(*instance, work, *args, stream, error) : MILLRACE_OK;
}

} // namespace

extern const OperatorEntry kQuality = {
    make_operator("quality", quality_create, quality_destroy, quality_needs, quality_launch, &kQualityDeclared), quality_load};

} // namespace millrace
