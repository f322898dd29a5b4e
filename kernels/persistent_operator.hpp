// The host's side of an operator with a persistent kernel, which `worker bench` launches under the name
// "OPERATOR:persistent".
//
// The parameter block and the record are the same as for the operator. The batch of a launch is one row: the
// mailbox (persistent.cuh), in pinned memory. The result is also in pinned memory. The row's length determines the
// maximum payload size of the mailbox. A launch ends after the host has stored kMailboxStop, or after a second
// without a payload.
#pragma once

#include "persistent.cuh"
#include "runtime/operator.hpp"

namespace millrace {

// Loads the persistent kernel and creates an instance of the plain operator. It returns an error for a GPU with a
// watchdog that stops long-running kernels.
template <class Kernel>
int32_t create_persistent(Kernel *kernel, const char *name, const millrace_operator &plain, int32_t ordinal,
                          const void *params, size_t bytes, void **out, millrace_error *error) {
    int watched = 0;
    if (int32_t s = check(error, cudaSetDevice(ordinal), "cudaSetDevice")) return s;
    if (int32_t s = check(error, cudaDeviceGetAttribute(&watched, cudaDevAttrKernelExecTimeout, ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    if (watched) {
        return fail(error, MILLRACE_UNAVAILABLE, 0,
                    "%s: GPU %d drives a display, and its watchdog would end a persistent kernel", name, ordinal);
    }
    if (int32_t s = load_kernel(kernel, name, error)) return s;
    return plain.create(&plain, ordinal, params, bytes, out, error);
}

// Rounds up to 256 bytes, the alignment of scratch, so that the next part of the scratch is aligned too.
inline uint64_t aligned_room(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Returns the plain operator's needs for the largest payload of a mailbox. Mailbox is millrace_shape or millrace_launch.
template <class Mailbox>
int32_t largest_needs(const millrace_operator &plain, const void *instance, const Mailbox &mailbox,
                      millrace_shape *payload, millrace_needs *needs, millrace_error *error) {
    if (mailbox.rows != 1 || mailbox.bytes < sizeof(MailboxWords) || mailbox.bytes % kMailboxAlign != 0) {
        return fail(error, MILLRACE_INVALID, 0,
                    "%s:persistent: %llu rows and %llu bytes: give one row, which is a mailbox of %zu bytes and the payload, "
                    "rounded up to %u",
                    plain.name, static_cast<unsigned long long>(mailbox.rows),
                    static_cast<unsigned long long>(mailbox.bytes), sizeof(MailboxWords), kMailboxAlign);
    }
    uint64_t bytes = mailbox.bytes - sizeof(MailboxWords);
    *payload = millrace_shape{sizeof *payload, 0, 1, bytes, bytes};
    return plain.needs(instance, payload, needs, error);
}

inline int32_t persistent_needs(const millrace_operator &plain, const void *instance, const millrace_shape *mailbox,
                                millrace_needs *needs, millrace_error *error) {
    millrace_shape payload = {};
    millrace_needs largest = {};
    largest.size = sizeof largest;
    if (int32_t s = largest_needs(plain, instance, *mailbox, &payload, &largest, error)) return s;
    needs->scratch = aligned_room(payload.bytes) + aligned_room(2 * sizeof(uint32_t)) + aligned_room(largest.scratch) +
                     aligned_room(largest.result);
    needs->result = largest.result;
    needs->in_place = 1;
    return MILLRACE_OK;
}

// Divides a launch's memory into the parts that the kernel uses, in the order of persistent_needs.
inline int32_t persistent_memory(const millrace_operator &plain, const void *instance, const millrace_launch &args,
                                 PersistentMemory *memory, millrace_error *error) {
    millrace_shape payload = {};
    millrace_needs largest = {};
    largest.size = sizeof largest;
    if (int32_t s = largest_needs(plain, instance, args, &payload, &largest, error)) return s;
    uint64_t offsets = args.scratch + aligned_room(payload.bytes);
    uint64_t scratch = offsets + aligned_room(2 * sizeof(uint32_t));
    uint64_t result = scratch + aligned_room(largest.scratch);
    memory->mailbox = reinterpret_cast<MailboxWords *>(args.batch);
    memory->record = reinterpret_cast<uint32_t *>(args.result);
    memory->payload = reinterpret_cast<uint8_t *>(args.scratch);
    memory->offsets = reinterpret_cast<uint32_t *>(offsets);
    memory->scratch = reinterpret_cast<uint32_t *>(scratch);
    memory->result = reinterpret_cast<uint32_t *>(result);
    return MILLRACE_OK;
}

} // namespace millrace
