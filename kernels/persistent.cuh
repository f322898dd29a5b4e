// A persistent kernel: one block that stays on the GPU and reads payloads from a mailbox in pinned memory. Only the row
// `persistent` of `worker bench` launches one: see docs/adr/0014-persistent-kernels.md.
//
// An access over the bus takes about a microsecond, so the block crosses the bus as rarely as possible. It does so once to detect
// a payload, once for its length, once for the payload, and once for the record. All threads together copy the payload to device
// memory. Between these accesses, the operator processes tiles in device memory, as in its plain kernel.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "math/both.cuh"
#include "system.cuh"

namespace millrace {

// The head of a mailbox. The payload follows it. internal/bench/persistent.go has the same layout.
//
// Payloads are numbered from 1. The host writes a payload and its length, and then stores its number in `posted`. The
// kernel writes the record, and then stores the number in `finished`. Each side writes to its own cache line.
struct MailboxWords {
    alignas(64) uint64_t posted; // set by the host: number of the last payload, or kMailboxStop
    uint32_t bytes;              // set by the host: the payload's length
    alignas(64) uint64_t finished; // set by the kernel: number of the last payload whose record is written
};
static_assert(offsetof(MailboxWords, bytes) == 8 && offsetof(MailboxWords, finished) == 64 && sizeof(MailboxWords) == 128,
              "internal/bench/persistent.go has this layout");

constexpr uint64_t kMailboxStop = ~0ull;

// A mailbox's size is a multiple of this many bytes, because the kernel reads the payload in vectors of this size.
constexpr uint32_t kMailboxAlign = 16;

// The kernel ends after this time without a payload, in nanoseconds of the GPU's clock. The host then launches it again. A wait
// for the whole GPU therefore takes at most a second, even if the host doesn't stop the kernel.
constexpr uint64_t kMailboxIdle = 1000ull * 1000 * 1000;

// The pause between two reads of the mailbox, in nanoseconds. The pause is short compared with an access over the bus. During the
// pause, other blocks can use the multiprocessor.
constexpr uint32_t kMailboxPause = 100;

// The memory that a persistent kernel uses.
struct PersistentMemory {
    MailboxWords *mailbox; // pinned; the payload follows it
    uint32_t *record;      // pinned: the last payload's record
    uint8_t *payload;      // on the device: a copy of the payload, rounded up to whole vectors
    uint32_t *offsets;     // on the device: the table of a batch that has the payload as its only row
    uint32_t *scratch;     // on the device: the operator's scratch
    uint32_t *result;      // on the device: the record that the operator writes
};

// A payload in the mailbox. One thread reads it for all threads.
struct MailboxRequest {
    uint64_t number; // kMailboxStop ends the kernel
    uint32_t bytes;
};

// Waits for a payload after number `served`. One thread calls it.
__device__ inline MailboxRequest next_request(const MailboxWords *words, uint64_t served) {
    uint64_t idle_since = nanoseconds(), posted;
    while ((posted = load_acquire_system(&words->posted)) == served) {
        if (nanoseconds() - idle_since > kMailboxIdle) return MailboxRequest{kMailboxStop, 0};
        pause_nanoseconds(kMailboxPause);
    }
    return MailboxRequest{posted, posted == kMailboxStop ? 0 : load_mapped(&words->bytes)};
}

// Copies the payload to device memory, and creates its table of offsets. All threads call it.
__device__ inline void bring_in(const PersistentMemory &memory, uint32_t bytes) {
    constexpr uint32_t kAtOnce = 4; // number of one thread's loads in flight
    const uint4 *from = reinterpret_cast<const uint4 *>(memory.mailbox + 1);
    uint4 *to = reinterpret_cast<uint4 *>(memory.payload);
    uint32_t vectors = (bytes + 15) / 16;
    if (threadIdx.x == 0) memory.offsets[0] = 0, memory.offsets[1] = bytes;
    for (uint32_t first = threadIdx.x; first < vectors; first += kAtOnce * blockDim.x) {
        uint4 vector[kAtOnce];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < kAtOnce; i++) {
            uint32_t at = first + i * blockDim.x;
            if (at < vectors) vector[i] = load_mapped(from + at);
        }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < kAtOnce; i++) {
            uint32_t at = first + i * blockDim.x;
            if (at < vectors) to[at] = vector[i];
        }
    }
}

// The kernel's loop. All threads of the block call it. All threads also call compute with the payload's length.
// compute writes record_words words to memory.result.
template <class Compute>
__device__ void serve_mailbox(const PersistentMemory &memory, uint32_t record_words, Compute compute) {
    __shared__ MailboxRequest request;
    uint64_t served = memory.mailbox->finished; // set by the previous launch
    for (;;) {
        if (threadIdx.x == 0) request = next_request(memory.mailbox, served);
        __syncthreads();
        if (request.number == kMailboxStop) return;
        served = request.number;
        bring_in(memory, request.bytes);
        __syncthreads();
        compute(request.bytes);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < record_words; i += blockDim.x) memory.record[i] = memory.result[i];
        __threadfence_system();
        __syncthreads(); // the whole record is written, and no thread still reads request
        if (threadIdx.x == 0) store_release_system(&memory.mailbox->finished, served);
    }
}

} // namespace millrace
