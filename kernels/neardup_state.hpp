// The index of near-duplicates behind the C ABI (millrace_neardup). The file that includes this one defines NeardupQueue, the queue of
// neardup_index.hpp, with the members `stream` and `error`. neardup.cu is for GPUs, and test/fake/neardup.cpp is for tests without a GPU.
#pragma once

#include <sys/random.h>

#include <new>

#include "neardup_index.hpp"
#include "runtime/operator.hpp"

struct millrace_neardup {
    millrace_stream *stream;
    void *memory;
    millrace::NeardupShape shape;
    millrace::NeardupIndex<millrace::NeardupQueue> index;
    bool broken; // a call failed after it had enqueued work
};

namespace millrace {

namespace {

int32_t read_shape(const millrace_neardup_parameters *parameters, NeardupShape *shape, millrace_error *error) {
    *shape = {parameters->bands, parameters->records, parameters->batch};
    if (shape->bands < 1 || shape->bands > kMostNeardupBands || shape->records < 1 || shape->records > kMostNeardupRecords) {
        return fail(error, MILLRACE_INVALID, 0, "neardup: %u bands and generations of %llu records: give 1 to %u bands, and 1 to %u records",
                    shape->bands, static_cast<unsigned long long>(shape->records), kMostNeardupBands, kMostNeardupRecords);
    }
    if (shape->batch < 1 || shape->batch > kMostNeardupBatch || shape->batch > shape->records) {
        return fail(error, MILLRACE_INVALID, 0, "neardup: batches of %llu records: give 1 to %u, and no more than a generation, which is %llu",
                    static_cast<unsigned long long>(shape->batch), kMostNeardupBatch, static_cast<unsigned long long>(shape->records));
    }
    return MILLRACE_OK;
}

// Sets *blocks to the number of blocks of neardup_settle that can wait for each other.
int32_t settle_blocks(int32_t ordinal, uint32_t *blocks, millrace_error *error) {
    int supported = 0;
    if (int32_t s = check(error, cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, ordinal), "cudaDeviceGetAttribute")) return s;
    if (!supported) return fail(error, MILLRACE_UNAVAILABLE, 0, "neardup: this GPU has no cooperative launches");
    return multiprocessors(ordinal, blocks, error); // a block needs at most one multiprocessor
}

int32_t make_neardup(millrace_stream *stream, const NeardupShape &shape, millrace_neardup **out, millrace_error *error) {
    uint32_t blocks = 0;
    uint64_t multipliers[3];
    if (int32_t s = settle_blocks(stream->device->ordinal, &blocks, error)) return s;
    if (getrandom(multipliers, sizeof multipliers, 0) != sizeof multipliers) {
        return fail(error, MILLRACE_UNAVAILABLE, 0, "neardup: the system has no random numbers");
    }
    for (uint64_t &m : multipliers) m |= 1;
    void *memory = nullptr;
    uint64_t bytes = neardup_memory(shape, 0).end;
    if (int32_t s = check(error, cudaMalloc(&memory, bytes), "cudaMalloc")) return s;
    NeardupIndex<NeardupQueue> index(shape, reinterpret_cast<uint64_t>(memory), {kNeardupBlock, blocks, 4096}, multipliers);
    NeardupQueue queue = {stream->stream, error};
    int32_t status = index.begin(queue);
    millrace_neardup *state = status == MILLRACE_OK ? new (std::nothrow) millrace_neardup{stream, memory, shape, index, false} : nullptr;
    if (state != nullptr) {
        *out = state;
        return MILLRACE_OK;
    }
    if (status == MILLRACE_OK) status = fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for an index");
    (void)cudaFree(memory);
    return status;
}

// Makes the device current, or returns an error if the state is unusable.
int32_t use_neardup(const millrace_neardup *state, millrace_error *error) {
    if (state->broken) return fail(error, MILLRACE_INVALID, 0, "neardup: an earlier call failed half-way: make a new index from the log");
    return use(state->stream->device, error);
}

int32_t finish_call(millrace_neardup *state, int32_t status) {
    state->broken = status != MILLRACE_OK;
    return status;
}

template <class T>
const T *pointer_to(uint64_t address) { return reinterpret_cast<const T *>(address); }

} // namespace

int32_t neardup_load(millrace_error *error) {
    if (int32_t s = load_kernel(neardup_probe, "loading neardup_probe", error)) return s;
    if (int32_t s = load_kernel(neardup_gather, "loading neardup_gather", error)) return s;
    if (int32_t s = load_kernel(neardup_carry, "loading neardup_carry", error)) return s;
    if (int32_t s = load_kernel(neardup_guess, "loading neardup_guess", error)) return s;
    if (int32_t s = load_kernel(neardup_settle, "loading neardup_settle", error)) return s;
    if (int32_t s = load_kernel(neardup_finish, "loading neardup_finish", error)) return s;
    if (int32_t s = load_kernel(neardup_remove, "loading neardup_remove", error)) return s;
    if (int32_t s = load_kernel(neardup_move, "loading neardup_move", error)) return s;
    return load_kernel(neardup_insert, "loading neardup_insert", error);
}

int32_t neardup_needs(const millrace_neardup_parameters *parameters, millrace_neardup_memory *needs, millrace_error *error) {
    NeardupShape shape;
    if (int32_t s = read_shape(parameters, &shape, error)) return s;
    needs->device = neardup_memory(shape, 0).end;
    needs->result = neardup_result_bytes(shape.batch, shape.bands);
    needs->lists = sizeof(NeardupHeader) + shape.batch * sizeof(NeardupRow);
    needs->list = neardup_list_words(shape.bands) * sizeof(uint64_t);
    needs->carried = neardup_also_words(shape.bands) * sizeof(uint64_t);
    return MILLRACE_OK;
}

int32_t neardup_create(millrace_stream *stream, const millrace_neardup_parameters *parameters, millrace_neardup **out, millrace_error *error) {
    NeardupShape shape;
    if (int32_t s = read_shape(parameters, &shape, error)) return s;
    if (int32_t s = use(stream->device, error)) return s;
    return make_neardup(stream, shape, out, error);
}

int32_t neardup_destroy(millrace_neardup *state, millrace_error *error) {
    int32_t status = use(state->stream->device, error);
    if (status == MILLRACE_OK) status = check(error, cudaFree(state->memory), "cudaFree");
    delete state;
    return status;
}

int32_t neardup_apply(millrace_neardup *state, const millrace_neardup_batch *batch, millrace_error *error) {
    if (int32_t s = use_neardup(state, error)) return s;
    if (batch->records < 1 || batch->records > state->shape.batch) {
        return fail(error, MILLRACE_INVALID, 0, "neardup: a batch of %llu records: give 1 to %llu",
                    static_cast<unsigned long long>(batch->records), static_cast<unsigned long long>(state->shape.batch));
    }
    NeardupQueue queue = {state->stream->stream, error};
    return finish_call(state, state->index.apply(queue, {batch->records, pointer_to<unsigned long long>(batch->keys),
                                                         pointer_to<NeardupPosition>(batch->positions),
                                                         reinterpret_cast<uint8_t *>(batch->result)}));
}

int32_t neardup_undo(millrace_neardup *state, millrace_error *error) {
    if (int32_t s = use_neardup(state, error)) return s;
    if (!state->index.undoable()) return fail(error, MILLRACE_INVALID, 0, "neardup: no batch can be undone: undo it right after applying it");
    NeardupQueue queue = {state->stream->stream, error};
    return finish_call(state, state->index.undo(queue));
}

int32_t neardup_replay(millrace_neardup *state, const millrace_neardup_rows *rows, millrace_error *error) {
    if (int32_t s = use_neardup(state, error)) return s;
    NeardupQueue queue = {state->stream->stream, error};
    if (int32_t s = finish_call(state, state->index.commit(queue))) return s;
    uint64_t limit = state->shape.records, filled = state->index.filled();
    if (rows->first != (filled == limit ? 0 : filled) || rows->records < 1 || rows->records > kMostNeardupBatch || rows->records > limit - rows->first ||
        rows->keys > rows->records * state->shape.bands || rows->carried > limit || rows->first_carried > limit - rows->carried) {
        return fail(error, MILLRACE_INVALID, 0, "neardup: %llu rows from record %llu with %llu keys and %llu carried labels do not follow the %llu records of their generation",
                    static_cast<unsigned long long>(rows->records), static_cast<unsigned long long>(rows->first), static_cast<unsigned long long>(rows->keys),
                    static_cast<unsigned long long>(rows->carried), static_cast<unsigned long long>(filled));
    }
    NeardupReplay work = {};
    work.records = static_cast<uint32_t>(rows->records), work.keys = static_cast<uint32_t>(rows->keys);
    work.carried = static_cast<uint32_t>(rows->carried), work.first_carried = static_cast<uint32_t>(rows->first_carried);
    work.carries = static_cast<uint32_t>(rows->carries);
    work.labels = pointer_to<NeardupPosition>(rows->labels), work.carried_labels = pointer_to<NeardupPosition>(rows->carried_labels);
    work.inserted = pointer_to<unsigned long long>(rows->inserted), work.key_labels = pointer_to<uint32_t>(rows->key_labels);
    work.conflicts = reinterpret_cast<unsigned long long *>(rows->conflicts);
    return finish_call(state, state->index.replay(queue, rows->first, work));
}

} // namespace millrace
