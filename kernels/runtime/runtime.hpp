// Declarations shared by the parts of the runtime: the objects behind the ABI's opaque types, and errors.
#pragma once

#include <cuda_runtime.h>
#include <pthread.h>

#include "millrace.h"

namespace millrace {

// ---- errors (error.cpp) ----

// Fills in *error and returns status.
int32_t fail(millrace_error *error, int32_t status, int32_t code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Converts the result of a CUDA call to a status with a message that contains the call. It clears the error in the
// runtime, so that a later, unrelated call doesn't find it.
int32_t fail_cuda(millrace_error *error, cudaError_t result, const char *call);

inline int32_t check(millrace_error *error, cudaError_t result, const char *call) {
    return result == cudaSuccess ? MILLRACE_OK : fail_cuda(error, result, call);
}

// Like check, but for the result of a kernel launch. It returns MILLRACE_LAUNCH for an invalid argument.
int32_t check_launch(millrace_error *error, const char *kernel);

// Like check, but for loading a kernel. It returns MILLRACE_UNAVAILABLE if the GPU or its driver can't run the kernel.
int32_t check_image(millrace_error *error, cudaError_t result, const char *kernel);

// Allocates page-locked memory with the flags of cudaHostAlloc (memory.cpp).
int32_t pin(void **memory, size_t bytes, unsigned flags, millrace_error *error);

// ---- the probe (probe.cu) ----

// The words that the host and the probe's kernel exchange, in pinned memory.
struct ProbeWords {
    uint32_t question;
    uint32_t answer;
};

// A small operation with a known result. Only one operation runs at a time.
struct Probe {
    pthread_mutex_t mutex;
    cudaStream_t stream;  // used only for the probe
    ProbeWords *words;    // pinned; nullptr before probe_open
    uint32_t *memory;     // on the device: a question and its answer
    uint32_t asked;       // the latest question
    bool pending;         // whether the latest question has no answer yet
};

int32_t probe_open(Probe *probe, millrace_error *error);
void probe_close(Probe *probe);

// Enqueues the next question, or checks for the answer to the pending one. It doesn't wait. It returns
// MILLRACE_NOT_READY until the answer exists, and MILLRACE_LOST if the answer is wrong or CUDA reports an error.
int32_t probe_ask(Probe *probe, millrace_error *error);

// Returns the lowest compute capability for which the library has code, as 10 * major + minor.
int least_compute();

// ---- completion (completion.cpp) ----

struct Completions;

// One outstanding notification. The host function gets a pointer to it.
struct Notification {
    Completions *queue;
    uint64_t token;
    uint32_t next_free;
};

// A bounded queue of tokens, and an eventfd that becomes readable when a token is queued. notify reserves an entry, which is free
// again when the token is drained. The queue therefore always has space for the host function, which doesn't allocate.
struct Completions {
    pthread_mutex_t mutex;
    int fd;
    uint32_t capacity;
    Notification *notifications; // an array of `capacity` notifications
    uint32_t free;               // head of the free list; capacity if it is empty
    uint32_t outstanding;        // number of notifications passed to CUDA or queued
    uint64_t *tokens;            // ring buffer with `capacity` entries
    uint32_t head, queued;
};

int32_t completions_open(Completions *queue, uint32_t capacity, millrace_error *error);
void completions_close(Completions *queue);

// ---- gates (gate.cu) ----

constexpr uint32_t kGates = 64;

// A gate's two words in mapped memory. The kernel waits for opened == ticket and then sets done = ticket.
struct GateSlot {
    uint64_t opened;
    uint64_t done;
};

struct Gates {
    pthread_mutex_t mutex;
    GateSlot *slots;           // kGates slots, pinned
    GateSlot *device_slots;    // address of the same memory on the GPU
    uint64_t tickets[kGates];  // ticket of the latest gate in each slot; 0 without a gate
    uint64_t last_ticket;
};

int32_t gates_open(Gates *gates, millrace_error *error);
void gates_close(Gates *gates);

// ---- operators (one .cu each) ----

struct OperatorEntry {
    millrace_operator op;
    // Loads the operator's kernels onto the current device.
    int32_t (*load)(millrace_error *error);
};

// Returns an operator with the library's version of the structure. An operator without a description is only for
// measurements.
constexpr millrace_operator make_operator(const char *name, decltype(millrace_operator::create) create,
                                          decltype(millrace_operator::destroy) destroy,
                                          decltype(millrace_operator::needs) needs,
                                          decltype(millrace_operator::launch) launch, const void *description = nullptr) {
    return {sizeof(millrace_operator), 1, name, description, create, destroy, needs, launch};
}

extern const OperatorEntry kCrc32c;
extern const OperatorEntry kMinhash;
extern const OperatorEntry kMinhashPlain; // minhash with one kind of kernel; same load as kMinhash
extern const OperatorEntry kMinhashSpecialized;
extern const OperatorEntry kMinhashCluster;
extern const OperatorEntry kQuality;
extern const OperatorEntry kNeardupKeys;
extern const OperatorEntry kMix;
extern const OperatorEntry kCrc32cPersistent; // for `worker bench`; without load, because create loads the kernel
extern const OperatorEntry kMinhashPersistent;

// Loads one kernel onto the current device. By default, CUDA loads a kernel at its first launch. The load may wait for running
// kernels, even forever if a running kernel waits for the new one.
template <class Kernel>
int32_t load_kernel(Kernel *kernel, const char *name, millrace_error *error) {
    cudaFuncAttributes attributes;
    return check_image(error, cudaFuncGetAttributes(&attributes, kernel), name);
}

} // namespace millrace

// ---- the ABI's objects ----

struct millrace_device {
    int ordinal;
    millrace::Probe probe;
    millrace::Completions completions;
    millrace::Gates gates;
};

struct millrace_stream {
    millrace_device *device;
    cudaStream_t stream;
    bool own; // created by stream_create
};

struct millrace_event {
    millrace_device *device;
    cudaEvent_t event;
};

struct millrace_pool {
    millrace_device *device;
    cudaMemPool_t pool;
};

namespace millrace {

// Makes the device current for the calling thread. Go moves goroutines between threads, so every function starts with this call.
// If the device is already current, the call takes some tens of nanoseconds.
inline int32_t use(const millrace_device *device, millrace_error *error) {
    return check(error, cudaSetDevice(device->ordinal), "cudaSetDevice");
}

// The functions of the table. Each topic has its own file.
int32_t versions(int32_t *runtime, int32_t *driver, millrace_error *error);
int32_t device_count(int32_t *count, millrace_error *error);
int32_t device_info(int32_t ordinal, millrace_device_info *info, millrace_error *error);
int32_t device_open(int32_t ordinal, uint32_t completions, millrace_device **device, millrace_error *error);
int32_t device_close(millrace_device *device, millrace_error *error);
int32_t device_check(millrace_device *device, millrace_error *error);

int32_t stream_create(millrace_device *device, millrace_stream **stream, millrace_error *error);
int32_t stream_default(millrace_device *device, int32_t kind, millrace_stream **stream, millrace_error *error);
int32_t stream_destroy(millrace_stream *stream, millrace_error *error);
int32_t stream_synchronize(millrace_stream *stream, millrace_error *error);
int32_t stream_wait(millrace_stream *stream, millrace_event *event, millrace_error *error);
int32_t launch(millrace_stream *stream, const millrace_operator *op, const void *instance,
               const millrace_launch *args, millrace_error *error);

int32_t event_create(millrace_device *device, int32_t flags, millrace_event **event, millrace_error *error);
int32_t event_destroy(millrace_event *event, millrace_error *error);
int32_t event_record(millrace_event *event, millrace_stream *stream, millrace_error *error);
int32_t event_query(millrace_event *event, millrace_error *error);
int32_t event_synchronize(millrace_event *event, millrace_error *error);
int32_t event_elapsed(millrace_event *from, millrace_event *to, float *milliseconds, millrace_error *error);

int32_t host_alloc(millrace_device *device, uint64_t bytes, void **memory, millrace_error *error);
int32_t host_free(millrace_device *device, void *memory, millrace_error *error);
int32_t device_alloc(millrace_device *device, uint64_t bytes, uint64_t *address, millrace_error *error);
int32_t device_free(millrace_device *device, uint64_t address, millrace_error *error);
int32_t copy_in(millrace_stream *stream, uint64_t to, const void *from, uint64_t bytes, millrace_error *error);
int32_t copy_out(millrace_stream *stream, void *to, uint64_t from, uint64_t bytes, millrace_error *error);
int32_t fill(millrace_stream *stream, uint64_t to, uint8_t value, uint64_t bytes, millrace_error *error);

int32_t pool_create(millrace_device *device, uint64_t limit, uint64_t threshold, millrace_pool **pool,
                    millrace_error *error);
int32_t pool_destroy(millrace_pool *pool, millrace_error *error);
int32_t pool_alloc(millrace_pool *pool, millrace_stream *stream, uint64_t bytes, uint64_t *address,
                   millrace_error *error);
int32_t pool_free(millrace_pool *pool, millrace_stream *stream, uint64_t address, millrace_error *error);
int32_t pool_trim(millrace_pool *pool, uint64_t keep, millrace_error *error);
int32_t pool_set_threshold(millrace_pool *pool, uint64_t threshold, millrace_error *error);
int32_t pool_stats(millrace_pool *pool, millrace_pool_stats *stats, millrace_error *error);

int32_t notify(millrace_stream *stream, uint64_t token, millrace_error *error);
int32_t completion_fd(millrace_device *device);
uint32_t completion_drain(millrace_device *device, uint64_t *tokens, uint32_t room);

int32_t gate_enqueue(millrace_stream *stream, uint64_t *ticket, millrace_error *error);
void gate_open(millrace_device *device, uint64_t ticket);

int32_t operator_load(millrace_device *device, const void *image, uint64_t bytes, const millrace_operator **out,
                      millrace_error *error);
int32_t operator_unload(const millrace_operator *op, millrace_error *error);

int32_t compiler_open(const char *path, const millrace_compiler **out, millrace_error *error);
int32_t compile(const millrace_compiler *compiler, const millrace_source *source, millrace_compiled **out,
                millrace_error *error);
void compiled_free(millrace_compiled *compiled);

int32_t library_open(millrace_device *device, const char *path, const millrace_operator **out, millrace_error *error);

int32_t neardup_load(millrace_error *error); // loads the kernels onto the current device
int32_t neardup_needs(const millrace_neardup_parameters *parameters, millrace_neardup_memory *needs, millrace_error *error);
int32_t neardup_create(millrace_stream *stream, const millrace_neardup_parameters *parameters, millrace_neardup **out,
                       millrace_error *error);
int32_t neardup_destroy(millrace_neardup *index, millrace_error *error);
int32_t neardup_apply(millrace_neardup *index, const millrace_neardup_batch *batch, millrace_error *error);
int32_t neardup_undo(millrace_neardup *index, millrace_error *error);
int32_t neardup_replay(millrace_neardup *index, const millrace_neardup_rows *rows, millrace_error *error);

uint64_t range_start(const char *name, size_t bytes);
void range_end(uint64_t range);

} // namespace millrace
