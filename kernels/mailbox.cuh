// The mailbox of a resident kernel: the words in pinned memory that the host and the kernel both see.
//
// Batches are numbered from 1. The host fills in the request and then stores its number in `posted`; the kernel
// carries it out and stores the number in `finished`. Each side writes a cache line of its own.
#pragma once

#include <stdint.h>

namespace millrace {

struct alignas(64) MailboxWords {
    // The host's.
    uint64_t posted;  // number of the last batch, or kMailboxStop
    uint32_t rows;    // the request: its shape, and where it is in pinned memory
    uint32_t bytes;
    uint64_t batch;   // a multiple of 16
    uint64_t offsets; // likewise
    uint64_t result;  // a multiple of 4

    // The kernel's.
    alignas(64) uint64_t finished; // number of the last batch that is done
    uint64_t left;                 // the last run of the kernel that has ended
};

constexpr uint64_t kMailboxStop = ~0ull;

// The kernel ends by itself when nothing was posted for so long, in nanoseconds of the GPU's clock. The next batch
// starts it again. A host that forgets it, or that waits for the whole GPU, is thus not held up for ever, and an SM
// is not kept from others for nothing.
constexpr uint64_t kMailboxIdle = 1000ull * 1000 * 1000;

} // namespace millrace
