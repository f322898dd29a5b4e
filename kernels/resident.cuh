// A kernel of one block that stays on the GPU and takes batches from a mailbox.
//
// The bus is a microsecond away, so the block crosses it as seldom as it can: once to see that there is a batch,
// once for the request, once for the batch itself, which all threads bring to device memory together, and once for the
// results. In between, the operator's tiles run as in its plain kernel, on device memory.
#pragma once

#include "mailbox.cuh"
#include "include/millrace.h"
#include "math/both.cuh"
#include "system.cuh"

namespace millrace {

// Pause between two looks into the mailbox, in nanoseconds: short against the bus, and it leaves the SM to others.
constexpr uint32_t kMailboxPause = 100;

// A batch in device memory, as an operator's tiles take it.
struct ResidentBatch {
    uint32_t rows, bytes;
    const uint8_t *batch;
    const uint32_t *offsets;
    uint32_t *scratch;
    uint32_t *result;
};

// A request, read by one thread for all.
struct ResidentRequest {
    uint64_t number; // kMailboxStop to end
    uint32_t rows, bytes;
    const uint4 *batch;
    const uint32_t *offsets;
    uint32_t *result;
};

template <class T>
__device__ T *resident_pointer(uint32_t low, uint32_t high) {
    return reinterpret_cast<T *>(static_cast<uint64_t>(high) << 32 | low);
}

// Waits for a batch behind number `served`. One thread calls it.
__device__ inline ResidentRequest next_request(const MailboxWords *words, uint64_t served) {
    ResidentRequest request = {kMailboxStop, 0, 0, nullptr, nullptr, nullptr};
    uint64_t idle_since = nanoseconds(), posted;
    while ((posted = load_acquire_system(&words->posted)) == served) {
        if (nanoseconds() - idle_since > kMailboxIdle) return request;
        pause_nanoseconds(kMailboxPause);
    }
    if (posted == kMailboxStop) return request;
    // The words from `posted` on, 16 bytes at a time: three loads that are on their way together.
    const uint4 *line = reinterpret_cast<const uint4 *>(words);
    uint4 shape = load_mapped(line), places = load_mapped(line + 1), result = load_mapped(line + 2);
    request.number = posted, request.rows = shape.z, request.bytes = shape.w;
    request.batch = resident_pointer<const uint4>(places.x, places.y);
    request.offsets = resident_pointer<const uint32_t>(places.z, places.w);
    request.result = resident_pointer<uint32_t>(result.x, result.y);
    return request;
}

// Brings the batch's bytes, 16 a thread, and its table over in one sweep. What stands between the last byte and the
// next multiple of 16 comes along: the table begins behind it.
__device__ inline void bring_in(const ResidentRequest &from, const millrace_resident &room) {
    constexpr uint32_t kAtOnce = 4; // loads of a thread on their way together
    uint4 *batch = reinterpret_cast<uint4 *>(room.batch);
    uint32_t *offsets = reinterpret_cast<uint32_t *>(room.offsets);
    uint32_t vectors = (from.bytes + 15) / 16, entries = from.rows + 1;
    for (uint32_t first = threadIdx.x; first < vectors + entries; first += kAtOnce * blockDim.x) {
        uint4 vector[kAtOnce];
        uint32_t entry[kAtOnce];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < kAtOnce; i++) {
            uint32_t at = first + i * blockDim.x;
            if (at < vectors) {
                vector[i] = load_mapped(from.batch + at);
            } else if (at < vectors + entries) {
                entry[i] = load_mapped(from.offsets + (at - vectors));
            }
        }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < kAtOnce; i++) {
            uint32_t at = first + i * blockDim.x;
            if (at < vectors) {
                batch[at] = vector[i];
            } else if (at < vectors + entries) {
                offsets[at - vectors] = entry[i];
            }
        }
    }
}

// The kernel's loop. compute is called by all threads with a batch of at least one row, and writes record_words words
// of result for each row. All threads of the block call serve_mailbox.
template <class Compute>
__device__ void serve_mailbox(const millrace_resident &room, uint32_t record_words, Compute compute) {
    __shared__ ResidentRequest request;
    MailboxWords *words = reinterpret_cast<MailboxWords *>(room.mailbox);
    uint64_t served = words->finished; // of the run before this one: nobody else writes it
    for (;;) {
        if (threadIdx.x == 0) request = next_request(words, served);
        __syncthreads();
        if (request.number == kMailboxStop) break;
        served = request.number;
        if (request.rows != 0) {
            bring_in(request, room);
            __syncthreads();
            uint32_t *result = reinterpret_cast<uint32_t *>(room.result);
            compute(ResidentBatch{request.rows, request.bytes, reinterpret_cast<const uint8_t *>(room.batch),
                                  reinterpret_cast<const uint32_t *>(room.offsets),
                                  reinterpret_cast<uint32_t *>(room.scratch), result});
            __syncthreads();
            uint32_t values = request.rows * record_words;
            for (uint32_t i = threadIdx.x; i < values; i += blockDim.x) request.result[i] = result[i];
            __threadfence_system();
        }
        __syncthreads(); // every thread's results are out, and nobody looks at request any more
        if (threadIdx.x == 0) store_release_system(&words->finished, served);
    }
    if (threadIdx.x == 0) store_release_system(&words->left, room.run);
}

} // namespace millrace
