// Mailboxes: a kernel that stays, and the words through which it gets its batches.
#include <string.h>
#include <time.h>

#include <new>

#include "runtime.hpp"

namespace millrace {

namespace {

// How long mailbox_close naps between two looks at the batch that it waits for, in nanoseconds.
constexpr long kCloseNap = 20 * 1000;

uint64_t finished(const millrace_mailbox *mailbox) {
    return __atomic_load_n(&mailbox->words->finished, __ATOMIC_ACQUIRE);
}

// Words that no other mailbox has, all zero; nullptr if there are none.
MailboxWords *take_words(Mailboxes *mailboxes) {
    MailboxWords *words = nullptr;
    pthread_mutex_lock(&mailboxes->mutex);
    for (uint32_t i = 0; i < kMailboxes && words == nullptr; i++) {
        if (mailboxes->taken[i]) continue;
        mailboxes->taken[i] = true;
        words = &mailboxes->words[i];
    }
    pthread_mutex_unlock(&mailboxes->mutex);
    if (words != nullptr) memset(static_cast<void *>(words), 0, sizeof *words);
    return words;
}

void give_words(Mailboxes *mailboxes, const MailboxWords *words) {
    pthread_mutex_lock(&mailboxes->mutex);
    mailboxes->taken[words - mailboxes->words] = false;
    pthread_mutex_unlock(&mailboxes->mutex);
}

// Refuses what cannot stay: a batch too large to be worth it, an operator without such a kernel, and GPUs that cannot
// read the host's memory at its own address or whose watchdog ends kernels that take long.
int32_t check_mailbox(const millrace_device *device, const millrace_operator *op, const millrace_shape *most,
                      millrace_error *error) {
    if (op->resident == nullptr) {
        return fail(error, MILLRACE_UNAVAILABLE, 0, "%s has no resident kernel: launch it", op->name);
    }
    if (most->rows > MILLRACE_MAILBOX_ROWS || most->bytes > MILLRACE_MAILBOX_BYTES) {
        return fail(error, MILLRACE_INVALID, 0, "batches of up to %llu rows and %llu bytes: a mailbox takes %u and %u",
                    static_cast<unsigned long long>(most->rows), static_cast<unsigned long long>(most->bytes),
                    MILLRACE_MAILBOX_ROWS, MILLRACE_MAILBOX_BYTES);
    }
    int unified = 0, watched = 0, pools = 0;
    if (int32_t s = check(error, cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device->ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    if (!pools) return fail(error, MILLRACE_UNAVAILABLE, 0, "no kernel can stay on this GPU: it has no memory pools");
    if (int32_t s = check(error, cudaDeviceGetAttribute(&unified, cudaDevAttrUnifiedAddressing, device->ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    if (int32_t s = check(error, cudaDeviceGetAttribute(&watched, cudaDevAttrKernelExecTimeout, device->ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    if (unified && !watched) return MILLRACE_OK;
    return fail(error, MILLRACE_UNAVAILABLE, 0, "no kernel can stay on this GPU: %s",
                unified ? "it drives a display, whose watchdog would end it" : "it has no unified addressing");
}

// A stream that work of other streams is not put behind: streams share a few hardware queues, but those of another
// priority have queues of their own. A queue that the resident kernel stands at the head of would wait for it.
int32_t make_stream(cudaStream_t *stream, millrace_error *error) {
    int least = 0, greatest = 0;
    if (int32_t s = check(error, cudaDeviceGetStreamPriorityRange(&least, &greatest),
                          "cudaDeviceGetStreamPriorityRange")) {
        return s;
    }
    return check(error, cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest),
                 "cudaStreamCreateWithPriority");
}

// Bytes of room for so many, cut so that what follows is aligned to 256 as well.
uint64_t room(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Allocates device memory for the largest batch, in the order of the mailbox's stream: that waits for no other.
int32_t make_room(millrace_mailbox *mailbox, const millrace_shape *most, millrace_error *error) {
    millrace_needs needs;
    if (int32_t s = mailbox->op->needs(mailbox->instance, most, &needs, error)) return s;
    uint64_t batch = room(most->bytes + 16), offsets = room(4 * (most->rows + 1)), scratch = room(needs.scratch);
    void *memory = nullptr;
    if (int32_t s = check(error, cudaMallocAsync(&memory, batch + offsets + scratch + room(needs.result), mailbox->stream),
                          "cudaMallocAsync")) {
        return s;
    }
    millrace_resident *resident = &mailbox->resident;
    resident->batch = reinterpret_cast<uint64_t>(memory);
    resident->offsets = resident->batch + batch;
    resident->scratch = resident->offsets + offsets;
    resident->result = resident->scratch + scratch;
    return MILLRACE_OK;
}

int32_t start(millrace_mailbox *mailbox, millrace_error *error) {
    mailbox->resident.run++;
    int32_t status = mailbox->op->resident(mailbox->instance, mailbox->stream, &mailbox->resident, error);
    if (status != MILLRACE_OK) mailbox->resident.run--;
    return status;
}

// Starts the kernel again if it has ended by itself. Where it is just about to, mailbox_check will find out.
int32_t restart(millrace_mailbox *mailbox, millrace_error *error) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST); // the batch is posted before the look
    if (__atomic_load_n(&mailbox->words->left, __ATOMIC_ACQUIRE) != mailbox->resident.run) return MILLRACE_OK;
    if (int32_t s = use(mailbox->device, error)) return s;
    return start(mailbox, error);
}

// Frees what a mailbox has, as far as the device still lets it. The kernel must have ended, or the device be lost.
void drop(millrace_mailbox *mailbox) {
    if (mailbox->resident.batch != 0) {
        (void)cudaFreeAsync(reinterpret_cast<void *>(mailbox->resident.batch), mailbox->stream);
    }
    if (mailbox->stream != nullptr) (void)cudaStreamDestroy(mailbox->stream);
    (void)cudaGetLastError();
    give_words(&mailbox->device->mailboxes, mailbox->words);
    delete mailbox;
}

int32_t open_parts(millrace_mailbox *mailbox, const millrace_shape *most, millrace_error *error) {
    if (int32_t s = make_stream(&mailbox->stream, error)) return s;
    if (int32_t s = make_room(mailbox, most, error)) return s;
    return start(mailbox, error);
}

} // namespace

int32_t mailboxes_open(Mailboxes *mailboxes, millrace_error *error) {
    void *memory = nullptr;
    if (int32_t s = pin(&memory, kMailboxes * sizeof(MailboxWords), cudaHostAllocMapped, error)) return s;
    mailboxes->words = static_cast<MailboxWords *>(memory);
    pthread_mutex_init(&mailboxes->mutex, nullptr);
    return MILLRACE_OK;
}

void mailboxes_close(Mailboxes *mailboxes) {
    if (mailboxes->words == nullptr) return;
    pthread_mutex_destroy(&mailboxes->mutex);
    (void)cudaFreeHost(mailboxes->words);
}

int32_t mailbox_open(millrace_device *device, const millrace_operator *op, const void *instance,
                     const millrace_shape *most, millrace_mailbox **out, millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    if (int32_t s = check_mailbox(device, op, most, error)) return s;
    MailboxWords *words = take_words(&device->mailboxes);
    if (words == nullptr) {
        return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "%u mailboxes are open, which is the bound: close one", kMailboxes);
    }
    millrace_mailbox *mailbox = new (std::nothrow) millrace_mailbox();
    if (mailbox == nullptr) {
        give_words(&device->mailboxes, words);
        return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a mailbox object");
    }
    mailbox->device = device, mailbox->op = op, mailbox->instance = instance, mailbox->words = words;
    mailbox->resident.mailbox = reinterpret_cast<uint64_t>(words);
    if (int32_t s = open_parts(mailbox, most, error)) {
        drop(mailbox);
        return s;
    }
    *out = mailbox;
    return MILLRACE_OK;
}

int32_t mailbox_post(millrace_mailbox *mailbox, const millrace_launch *batch, millrace_error *error) {
    MailboxWords *words = mailbox->words;
    words->rows = static_cast<uint32_t>(batch->shape.rows);
    words->bytes = static_cast<uint32_t>(batch->shape.bytes);
    words->batch = batch->batch, words->offsets = batch->offsets, words->result = batch->result;
    __atomic_store_n(&words->posted, ++mailbox->posted, __ATOMIC_RELEASE);
    int32_t status = restart(mailbox, error);
    // If the kernel has ended and cannot be started, nobody has seen the batch: it is taken back.
    if (status != MILLRACE_OK) __atomic_store_n(&words->posted, --mailbox->posted, __ATOMIC_RELEASE);
    return status;
}

const uint64_t *mailbox_finished(millrace_mailbox *mailbox) { return &mailbox->words->finished; }

int32_t mailbox_check(millrace_mailbox *mailbox, millrace_error *error) {
    if (finished(mailbox) != mailbox->posted) {
        if (int32_t s = restart(mailbox, error)) return s;
    }
    if (int32_t s = use(mailbox->device, error)) return s;
    cudaError_t result = cudaStreamQuery(mailbox->stream);
    if (result == cudaSuccess) return MILLRACE_OK;
    int32_t status = fail_cuda(error, result, "cudaStreamQuery of a mailbox");
    return status == MILLRACE_NOT_READY ? MILLRACE_OK : status; // the kernel is there, as it should be
}

int32_t mailbox_close(millrace_mailbox *mailbox, millrace_error *error) {
    int32_t status = MILLRACE_OK;
    while (status == MILLRACE_OK && finished(mailbox) != mailbox->posted) {
        timespec nap = {0, kCloseNap};
        (void)nanosleep(&nap, nullptr);
        status = mailbox_check(mailbox, error);
    }
    __atomic_store_n(&mailbox->words->posted, kMailboxStop, __ATOMIC_RELEASE);
    if (status != MILLRACE_LOST) {
        millrace_error later;
        int32_t ended = use(mailbox->device, &later);
        if (ended == MILLRACE_OK) ended = check(&later, cudaStreamSynchronize(mailbox->stream), "cudaStreamSynchronize");
        if (status == MILLRACE_OK && ended != MILLRACE_OK) *error = later, status = ended;
    }
    drop(mailbox);
    return status;
}

} // namespace millrace
