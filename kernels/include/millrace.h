/* millrace.h: the C ABI between Millrace and a kernel library (libmillrace.so).
 *
 * A library exports two functions, millrace_abi_version and millrace_api_get, and nothing else. The second
 * returns a table of functions. The header is plain C11 and needs no CUDA header.
 *
 * Rules that hold for the whole table:
 *
 *  - Every function that can fail returns a millrace_status and, unless that is MILLRACE_OK, fills in the
 *    caller's millrace_error. Nothing is kept in thread-local state. `error` is never NULL.
 *  - A function may be called on any thread: it makes its device current for the calling thread itself. Calls
 *    on one object may overlap, but destroying an object must not overlap any other call on it.
 *  - Device memory is a uint64_t address. Sizes are bytes. Pointers to the caller's memory are used during the
 *    call only, but for pinned memory, which copies use until the stream has passed them.
 *  - After MILLRACE_LOST the device is unusable for this process. Only the destroying functions may follow.
 *  - The table and the strings it names live as long as the process. The library is never unloaded.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of everything in this header. It rises with every change, and there is no compatibility between
 * versions: the loader refuses a library whose version is not its own. */
#define MILLRACE_ABI_VERSION 4u

/* Bytes of millrace_error.message, the closing zero included. Longer messages are cut. */
#define MILLRACE_MESSAGE_BYTES 248

/* What came of a call. */
typedef enum millrace_status {
    MILLRACE_OK = 0,
    MILLRACE_NOT_READY = 1,     /* asked for what has not happened yet; not a failure */
    MILLRACE_OUT_OF_MEMORY = 2, /* the device, the host, or a cap has no room; the device is well */
    MILLRACE_LAUNCH = 3,        /* a launch was refused before it ran; the device is well */
    MILLRACE_INVALID = 4,       /* an argument that cannot be: a bug of the caller, or bad parameters */
    MILLRACE_LOST = 5,          /* a sticky fault, or a code that says nothing else: the device is gone for this process */
    MILLRACE_UNAVAILABLE = 6,   /* no driver, too old a driver, no GPU, or one that cannot do this */
    MILLRACE_NOT_FOUND = 7      /* no device of that ordinal */
} millrace_status;

/* Why a call failed. It is written only when the status is not MILLRACE_OK. */
typedef struct millrace_error {
    int32_t status;                       /* the status that was returned */
    int32_t code;                         /* the cudaError_t behind it; 0 where there is none */
    char message[MILLRACE_MESSAGE_BYTES]; /* zero-terminated, for people */
} millrace_error;

/* What an event can do, joined by |. */
enum {
    MILLRACE_EVENT_TIMED = 1,   /* take part in event_elapsed */
    MILLRACE_EVENT_BLOCKING = 2 /* event_synchronize gives the processor away instead of spinning */
};

/* CUDA's default streams. */
typedef enum millrace_default_stream {
    MILLRACE_LEGACY_DEFAULT = 1,    /* joins every stream that stream_create did not make */
    MILLRACE_PER_THREAD_DEFAULT = 2 /* of whichever thread makes the call */
} millrace_default_stream;

/* Opaque objects. */
typedef struct millrace_device millrace_device;
typedef struct millrace_stream millrace_stream;
typedef struct millrace_event millrace_event;
typedef struct millrace_pool millrace_pool;

/* A GPU's properties. Versions are 1000 * major + 10 * minor. */
typedef struct millrace_device_info {
    char name[256];           /* as the driver calls it */
    char uuid[48];            /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
    uint64_t memory;          /* bytes of device memory in all */
    int32_t ordinal;          /* index among the GPUs that the process can see */
    int32_t compute_major;    /* compute capability */
    int32_t compute_minor;
    int32_t multiprocessors;
    int32_t driver_version;   /* the newest CUDA version that the driver supports */
    int32_t runtime_version;  /* the CUDA runtime that the library is built with */
    char pci[16];             /* its address on the PCI bus, "0000:4b:00.0", as in /sys/bus/pci/devices */
} millrace_device_info;

/* A pool's counters, in bytes. */
typedef struct millrace_pool_stats {
    uint64_t used;          /* handed out now */
    uint64_t reserved;      /* taken from the device now */
    uint64_t used_high;     /* most handed out at once */
    uint64_t reserved_high; /* most taken at once */
} millrace_pool_stats;

/* What is known of a ragged batch before it runs. */
typedef struct millrace_shape {
    uint64_t rows;    /* entries of the offsets table, less one; at most 2^31 - 1 */
    uint64_t bytes;   /* bytes of all rows together; at most 2^31 - 1 */
    uint64_t longest; /* bytes of the longest row */
} millrace_shape;

/* The device memory that one launch takes, in bytes. */
typedef struct millrace_needs {
    uint64_t scratch; /* undefined content before and after; 0 for none */
    uint64_t result;  /* fixed-size records, one a row, back to back */
    int32_t in_place; /* 1 if the batch is so small that reading and writing it in pinned host memory is faster than
                         copying it there and back */
} millrace_needs;

/* One launch over a ragged batch. The addresses are device memory, but for a batch that needs.in_place allows:
 * then batch, offsets and result may be pinned host memory. What they name must stay until the stream
 * has passed the launch. batch may start at any address (a multiple of 16 is fastest, then of 4), and nothing
 * outside its shape.bytes bytes is read. offsets is aligned to 4, scratch and result to 256. */
typedef struct millrace_launch {
    millrace_shape shape;
    uint64_t batch;   /* the rows' bytes back to back */
    uint64_t offsets; /* rows + 1 little-endian uint32: row i is batch[offsets[i]] up to batch[offsets[i+1]];
                         offsets[0] is 0 and offsets[rows] is shape.bytes */
    uint64_t scratch; /* at least needs.scratch bytes */
    uint64_t result;  /* at least needs.result bytes; content undefined before */
} millrace_launch;

/* One operator. A library of one's own fills in the same structure. An operator calls CUDA only in create,
 * destroy and launch, and must leave no error pending in the CUDA runtime. */
typedef struct millrace_operator {
    const char *name;    /* lower case, as in MILLRACE_OPERATORS */
    uint32_t version;    /* rises whenever results or the parameter block change */

    /* Makes an instance with a parameter block (packed, little-endian, layout per operator) on the GPU of that
     * ordinal. MILLRACE_INVALID for a bad block. */
    int32_t (*create)(int32_t ordinal, const void *params, size_t bytes, void **instance, millrace_error *error);

    /* Frees an instance. No launch of it may be in flight. */
    int32_t (*destroy)(void *instance, millrace_error *error);

    /* Says what memory a batch of that shape takes. It touches no hardware. */
    int32_t (*needs)(const void *instance, const millrace_shape *shape, millrace_needs *needs, millrace_error *error);

    /* Enqueues the batch on a CUDA stream (a cudaStream_t) and returns. Instances are immutable: launches of one
     * instance may run at once on several streams. */
    int32_t (*launch)(const void *instance, void *cuda_stream, const millrace_launch *launch, millrace_error *error);
} millrace_operator;

/* The table. */
typedef struct millrace_api {
    uint32_t abi_version; /* MILLRACE_ABI_VERSION of the library */
    uint32_t operator_count;
    const millrace_operator *operators;

    /* --- devices --- */

    /* The CUDA versions of the library and of the driver; *driver is 0 where there is no driver. */
    int32_t (*versions)(int32_t *runtime, int32_t *driver, millrace_error *error);

    /* How many GPUs the process can see. MILLRACE_UNAVAILABLE where there are none. */
    int32_t (*device_count)(int32_t *count, millrace_error *error);

    /* Describes a GPU without opening it. */
    int32_t (*device_info)(int32_t ordinal, millrace_device_info *info, millrace_error *error);

    /* Opens a GPU: makes its context, loads every built-in kernel (loading one later could wait for running
     * work), and makes room for `completions` (1 to 1048576) notifications at once. MILLRACE_UNAVAILABLE for a GPU that
     * the library has no code for: the message names its compute capability and the least one. */
    int32_t (*device_open)(int32_t ordinal, uint32_t completions, millrace_device **device, millrace_error *error);

    /* Waits for the device and frees the device object. Everything made from it must have been destroyed, and no
     * notification be outstanding. After a loss it may wait for ever: a process that ends need not call it. */
    int32_t (*device_close)(millrace_device *device, millrace_error *error);

    /* Asks the device something small with a known result: a copy in, a kernel, a copy out, on a stream of their own. It
     * does not wait: MILLRACE_NOT_READY until the answer is there, for which a later call looks. MILLRACE_OK if it was
     * right, MILLRACE_LOST if it was wrong or CUDA reports an error. A busy device may take long to answer. */
    int32_t (*device_check)(millrace_device *device, millrace_error *error);

    /* --- streams and events --- */

    /* Makes a stream that synchronizes with no other, not even the default one. */
    int32_t (*stream_create)(millrace_device *device, millrace_stream **stream, millrace_error *error);

    /* Gives a default stream, to measure what it costs. stream_destroy frees the object only. */
    int32_t (*stream_default)(millrace_device *device, int32_t kind, millrace_stream **stream, millrace_error *error);

    /* Frees a stream. Its work must be done, or the device lost. */
    int32_t (*stream_destroy)(millrace_stream *stream, millrace_error *error);

    /* Blocks the calling thread until the stream's work is done. */
    int32_t (*stream_synchronize)(millrace_stream *stream, millrace_error *error);

    /* Makes later work of the stream wait for what the event marks now; nothing if it was never recorded. */
    int32_t (*stream_wait)(millrace_stream *stream, millrace_event *event, millrace_error *error);

    /* Makes an event with flags MILLRACE_EVENT_*. */
    int32_t (*event_create)(millrace_device *device, int32_t flags, millrace_event **event, millrace_error *error);
    int32_t (*event_destroy)(millrace_event *event, millrace_error *error);

    /* Marks this point of the stream in the event, and forgets what it marked before. */
    int32_t (*event_record)(millrace_event *event, millrace_stream *stream, millrace_error *error);

    /* MILLRACE_OK once the device has reached the mark (or the event was never recorded), else MILLRACE_NOT_READY. */
    int32_t (*event_query)(millrace_event *event, millrace_error *error);

    /* Blocks the calling thread until the device has reached the mark. */
    int32_t (*event_synchronize)(millrace_event *event, millrace_error *error);

    /* Milliseconds from one timed event to another, negative if `to` came first. MILLRACE_NOT_READY before both
     * were reached. The resolution is about half a microsecond. */
    int32_t (*event_elapsed)(millrace_event *from, millrace_event *to, float *milliseconds, millrace_error *error);

    /* --- memory --- */

    /* Page-locked host memory (bytes > 0), usable with every GPU. */
    int32_t (*host_alloc)(millrace_device *device, uint64_t bytes, void **memory, millrace_error *error);
    int32_t (*host_free)(millrace_device *device, void *memory, millrace_error *error);

    /* Device memory (bytes > 0), not in stream order; may wait for all work of the device. */
    int32_t (*device_alloc)(millrace_device *device, uint64_t bytes, uint64_t *address, millrace_error *error);
    int32_t (*device_free)(millrace_device *device, uint64_t address, millrace_error *error);

    /* A pool of its own for stream-ordered allocation. limit caps what it takes from the device (rounded up to
     * the device's granularity; 0: no cap). threshold is how many unused bytes it keeps at a synchronization.
     * Memory freed on one stream serves another only once the freeing stream got there: the pool never makes a
     * stream wait for another. MILLRACE_UNAVAILABLE where the GPU or its driver has no such pools,
     * MILLRACE_OUT_OF_MEMORY where the limit is below what the driver takes at once. */
    int32_t (*pool_create)(millrace_device *device, uint64_t limit, uint64_t threshold, millrace_pool **pool,
                           millrace_error *error);

    /* Frees a pool. Memory still handed out goes back to the device when it is freed. */
    int32_t (*pool_destroy)(millrace_pool *pool, millrace_error *error);

    /* Allocates (bytes > 0, aligned to 256) and frees in the order of the stream. */
    int32_t (*pool_alloc)(millrace_pool *pool, millrace_stream *stream, uint64_t bytes, uint64_t *address,
                          millrace_error *error);
    int32_t (*pool_free)(millrace_pool *pool, millrace_stream *stream, uint64_t address, millrace_error *error);

    /* Gives unused memory back to the device, down to `keep` reserved bytes. */
    int32_t (*pool_trim)(millrace_pool *pool, uint64_t keep, millrace_error *error);
    int32_t (*pool_set_threshold)(millrace_pool *pool, uint64_t threshold, millrace_error *error);
    int32_t (*pool_stats)(millrace_pool *pool, millrace_pool_stats *stats, millrace_error *error);

    /* --- work --- */

    /* Asynchronous copies between pinned and device memory, and a fill with one byte value. */
    int32_t (*copy_in)(millrace_stream *stream, uint64_t to, const void *from, uint64_t bytes, millrace_error *error);
    int32_t (*copy_out)(millrace_stream *stream, void *to, uint64_t from, uint64_t bytes, millrace_error *error);
    int32_t (*fill)(millrace_stream *stream, uint64_t to, uint8_t value, uint64_t bytes, millrace_error *error);

    /* Launches an operator's instance on the stream. */
    int32_t (*launch)(millrace_stream *stream, const millrace_operator *op, const void *instance,
                      const millrace_launch *launch, millrace_error *error);

    /* --- completion --- */

    /* Puts token on the device's completion queue once the stream gets here. MILLRACE_OUT_OF_MEMORY when as many
     * are outstanding (neither reached nor drained) as device_open was told. After a sticky fault it never comes. */
    int32_t (*notify)(millrace_stream *stream, uint64_t token, millrace_error *error);

    /* A non-blocking eventfd that becomes readable when a token is queued. The device owns it. */
    int32_t (*completion_fd)(millrace_device *device);

    /* Takes up to `room` tokens off the queue, oldest first, without waiting. Returns how many. */
    uint32_t (*completion_drain)(millrace_device *device, uint64_t *tokens, uint32_t room);

    /* --- for tests and profilers --- */

    /* Enqueues a kernel that holds the stream up until gate_open(*ticket), or for ten seconds. At most 64 at once. */
    int32_t (*gate_enqueue)(millrace_stream *stream, uint64_t *ticket, millrace_error *error);

    /* Opens a gate; does nothing if it has opened already. */
    void (*gate_open)(millrace_device *device, uint64_t ticket);

    /* Opens a named NVTX range and closes it, on any thread. name is `bytes` long, cut to 127, and copied. */
    uint64_t (*range_start)(const char *name, size_t bytes);
    void (*range_end)(uint64_t range);
} millrace_api;

/* The ABI version that the library speaks. It never fails and touches no hardware. */
uint32_t millrace_abi_version(void);

/* The table, or NULL if abi_version is not the library's. It touches no hardware. */
const millrace_api *millrace_api_get(uint32_t abi_version);

#ifdef __cplusplus
}
#endif

#endif /* MILLRACE_H */
