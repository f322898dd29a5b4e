/* millrace.h: the C ABI between Millrace and a kernel library (libmillrace.so).
 *
 * A library exports only two functions, millrace_abi_version and millrace_api_get. The second function
 * returns a table of functions. The header is plain C11 and needs no CUDA header.
 *
 * These rules apply to the whole table:
 *
 *  - Every function that can fail returns a millrace_status. Unless the status is MILLRACE_OK, it also fills in the
 *    caller's millrace_error. Nothing is kept in thread-local state. `error` is never NULL.
 *  - A function may be called on any thread, and makes its device current for that thread. Calls on one
 *    object may overlap, but destroying an object must not overlap any other call on it.
 *  - Device memory is a uint64_t address. Sizes are in bytes. Pointers to the caller's memory are used only
 *    during the call. Pinned memory is an exception: copies use it until the stream has passed them.
 *  - After MILLRACE_LOST the device is unusable for this process. Only the destroying functions may follow.
 *  - The table and the strings in it live as long as the process. The library is never unloaded.
 *
 * These rules let a program and a library of different versions work together:
 *
 *  - Each structure begins with its size in bytes, and grows only at its end. The side that allocates a structure
 *    sets the size to its own version's size. The other side accesses no member beyond that size.
 *  - If a function fills in a structure, the caller has set all its other members to zero.
 *  - No structure contains another structure, so the position of a member never changes.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>

#include "millrace_neardup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of everything in this header. Every change increments it. */
#define MILLRACE_ABI_VERSION 6u

/* The oldest version of the other side that works with code compiled with this header. It changes only with changes
 * that the rules above can't express, such as another meaning of a member. Up to version 4, a library worked only
 * with programs of its own version. */
#define MILLRACE_ABI_LEAST 5u

/* The size of millrace_error.message in bytes, including the terminating zero. Longer messages are truncated. */
#define MILLRACE_MESSAGE_BYTES 244

/* The result of a call. */
typedef enum millrace_status {
    MILLRACE_OK = 0,
    MILLRACE_NOT_READY = 1,     /* the requested result doesn't exist yet; not a failure */
    MILLRACE_OUT_OF_MEMORY = 2, /* too little memory, or a limit is reached; the device still works */
    MILLRACE_LAUNCH = 3,        /* a launch was refused before it ran; the device still works */
    MILLRACE_INVALID = 4,       /* an invalid argument: a bug in the caller, or bad parameters */
    MILLRACE_LOST = 5,          /* a sticky fault or an unknown code: the device is unusable for this process */
    MILLRACE_UNAVAILABLE = 6,   /* no driver, too old a driver, no GPU, or a GPU without this feature */
    MILLRACE_NOT_FOUND = 7      /* no device with that ordinal */
} millrace_status;

/* The error of a call. It is written only if the status is not MILLRACE_OK. */
typedef struct millrace_error {
    uint32_t size;                        /* size of this structure */
    int32_t status;                       /* the returned status */
    int32_t code;                         /* the underlying cudaError_t; 0 if there is none */
    char message[MILLRACE_MESSAGE_BYTES]; /* zero-terminated, human-readable */
} millrace_error;

/* Properties of an event, combined with |. */
enum {
    MILLRACE_EVENT_TIMED = 1,   /* the event can be used in event_elapsed */
    MILLRACE_EVENT_BLOCKING = 2 /* event_synchronize releases the processor instead of spinning */
};

/* CUDA's default streams. */
typedef enum millrace_default_stream {
    MILLRACE_LEGACY_DEFAULT = 1,    /* synchronizes with every stream that stream_create did not create */
    MILLRACE_PER_THREAD_DEFAULT = 2 /* the default stream of the calling thread */
} millrace_default_stream;

/* Opaque objects. */
typedef struct millrace_device millrace_device;
typedef struct millrace_stream millrace_stream;
typedef struct millrace_event millrace_event;
typedef struct millrace_pool millrace_pool;

/* A GPU's properties. Versions are 1000 * major + 10 * minor. */
typedef struct millrace_device_info {
    uint32_t size;            /* size of this structure */
    uint32_t spare;
    char name[256];           /* the driver's name for the GPU */
    char uuid[48];            /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
    uint64_t memory;          /* total device memory in bytes */
    int32_t ordinal;          /* index among the GPUs visible to the process */
    int32_t compute_major;    /* compute capability */
    int32_t compute_minor;
    int32_t multiprocessors;
    int32_t driver_version;   /* newest CUDA version that the driver supports */
    int32_t runtime_version;  /* CUDA runtime that the library was built with */
    char pci[16];             /* address on the PCI bus, "0000:4b:00.0", as in /sys/bus/pci/devices */
} millrace_device_info;

/* A pool's counters, in bytes. */
typedef struct millrace_pool_stats {
    uint32_t size;          /* size of this structure */
    uint32_t spare;
    uint64_t used;          /* currently allocated */
    uint64_t reserved;      /* currently reserved from the device */
    uint64_t used_high;     /* maximum of used */
    uint64_t reserved_high; /* maximum of reserved */
} millrace_pool_stats;

/* The properties of a ragged batch that are known before it runs. */
typedef struct millrace_shape {
    uint32_t size;    /* size of this structure */
    uint32_t spare;
    uint64_t rows;    /* entries of the offsets table minus one; at most 2^31 - 1 */
    uint64_t bytes;   /* total size of the rows; at most 2^31 - 1 */
    uint64_t longest; /* size of the longest row */
} millrace_shape;

/* The device memory that one launch needs, in bytes. */
typedef struct millrace_needs {
    uint32_t size;    /* size of this structure */
    int32_t in_place; /* 1 if the batch is so small that accessing it in pinned host memory is faster than copying it */
    uint64_t scratch; /* undefined contents before and after; 0 without scratch */
    uint64_t result;  /* fixed-size records, one per row, back to back; then the operator's other outputs */
} millrace_needs;

/* One launch over a ragged batch. The addresses are in device memory. If needs.in_place is set for the batch, then
 * batch, offsets and result may be in pinned host memory instead. The memory must remain valid until the stream has
 * passed the launch. batch may start at any address (a multiple of 16 is fastest, then a multiple of 4), and the
 * kernels read nothing outside its `bytes` bytes. offsets is aligned to 4, scratch and result to 256. */
typedef struct millrace_launch {
    uint32_t size;    /* size of this structure */
    uint32_t spare;
    uint64_t rows;    /* these three are the members of millrace_shape */
    uint64_t bytes;
    uint64_t longest;
    uint64_t batch;   /* bytes of the rows, back to back */
    uint64_t offsets; /* rows + 1 little-endian uint32: row i is batch[offsets[i]] up to batch[offsets[i+1]];
                         offsets[0] is 0 and offsets[rows] is `bytes` */
    uint64_t scratch; /* at least needs.scratch bytes */
    uint64_t result;  /* at least needs.result bytes; undefined contents before */
    uint64_t status;  /* only for a millrace_library: in the result, a status byte per row; 0 without statuses */
    uint64_t strings; /* only for a millrace_library: in the result, the slots of byte strings; 0 without them */
} millrace_launch;

/* One operator. A custom library fills in the same structure. An operator calls CUDA only in create, destroy and
 * launch, and must leave no error pending in the CUDA runtime. */
typedef struct millrace_operator millrace_operator;
struct millrace_operator {
    uint32_t size;       /* size of this structure */
    uint32_t version;    /* incremented when the results or the parameter block change */
    const char *name;    /* lower case, as in MILLRACE_OPERATORS */

    /* The operator's description: struct millrace_description of millrace/description.h with its entries, in host
     * memory. It determines the parameter block and the layout of a result. NULL for the kernel library's operators
     * that are only for measurements. */
    const void *description;

    /* Creates an instance of the operator `self` from a parameter block on the GPU with that ordinal. Returns
     * MILLRACE_INVALID for an invalid block. */
    int32_t (*create)(const millrace_operator *self, int32_t ordinal, const void *params, size_t bytes, void **instance,
                      millrace_error *error);

    /* Frees an instance. No launch of it may be in flight. */
    int32_t (*destroy)(void *instance, millrace_error *error);

    /* Returns the memory that a batch of that shape needs. It doesn't access the hardware. For a millrace_library,
     * needs->result is already set. */
    int32_t (*needs)(const void *instance, const millrace_shape *shape, millrace_needs *needs, millrace_error *error);

    /* Enqueues the batch on a CUDA stream (a cudaStream_t) and returns. Instances are immutable, so launches of
     * one instance may run on several streams at once. */
    int32_t (*launch)(const void *instance, void *cuda_stream, const millrace_launch *launch, millrace_error *error);
};

/* A library with a user's operator exports two constants: this one, with the name millrace_operator_library, and
 * millrace_operator_description, to which op->description points. millrace/library.cuh defines both. Every version
 * from 5 on has the first three members. */
typedef struct millrace_library {
    uint32_t size;          /* size of this structure */
    uint32_t abi_version;   /* MILLRACE_ABI_VERSION of the library's header */
    uint32_t least_version; /* least MILLRACE_ABI_VERSION of a kernel library that this library works with */
    uint32_t spare;
    const millrace_operator *op;
} millrace_library;

/* A source file to compile. All texts are zero-terminated. */
typedef struct millrace_source {
    uint32_t size;            /* size of this structure */
    uint32_t compute;         /* compute capability of the GPU: 10 * major + minor */
    const char *name;         /* name of the file, for the compiler's messages */
    const char *text;
    const char *const *header_names; /* names as in #include directives */
    const char *const *header_texts;
    const char *const *options;      /* options of the compiler, such as -DNAME=VALUE */
    uint32_t headers, option_count;
} millrace_source;

/* The compiler's output for a source. */
typedef struct millrace_compiled {
    uint32_t size;     /* size of this structure */
    uint32_t spare;
    const void *image; /* a cubin; NULL if the source has errors */
    uint64_t bytes;
    const char *log;   /* the compiler's errors and warnings; zero-terminated */
} millrace_compiled;

/* The compiler, NVRTC. */
typedef struct millrace_compiler {
    uint32_t size;   /* size of this structure */
    int32_t version; /* 1000 * major + 10 * minor */
} millrace_compiler;

/* The function table. Every version from 5 on has the first three members. */
typedef struct millrace_api {
    uint32_t size;          /* size of this structure */
    uint32_t abi_version;   /* the library's MILLRACE_ABI_VERSION */
    uint32_t least_version; /* the least MILLRACE_ABI_VERSION of a program that the library works with */
    uint32_t operator_count;
    const millrace_operator *const *operators;

    /* --- devices --- */

    /* Returns the CUDA versions of the library and of the driver. *driver is 0 if there is no driver. */
    int32_t (*versions)(int32_t *runtime, int32_t *driver, millrace_error *error);

    /* Returns the number of GPUs visible to the process, or MILLRACE_UNAVAILABLE if there are none. */
    int32_t (*device_count)(int32_t *count, millrace_error *error);

    /* Describes a GPU without opening it. */
    int32_t (*device_info)(int32_t ordinal, millrace_device_info *info, millrace_error *error);

    /* Opens a GPU. It creates the context, loads every built-in kernel (a later load could wait for running
     * work), and reserves memory for `completions` (1 to 1048576) outstanding notifications. It returns
     * MILLRACE_UNAVAILABLE if the library has no code for the GPU. The message then contains the GPU's compute
     * capability and the minimum. */
    int32_t (*device_open)(int32_t ordinal, uint32_t completions, millrace_device **device, millrace_error *error);

    /* Waits for the device and frees the device object. Everything created from it must have been destroyed, and no
     * notification may be outstanding. After a loss it may wait forever. A process that ends doesn't need to call
     * it. */
    int32_t (*device_close)(millrace_device *device, millrace_error *error);

    /* Checks the device with a small operation that has a known result: a copy in, a kernel and a copy out, on a
     * separate stream. It doesn't wait. It returns MILLRACE_NOT_READY until the result exists, and the caller must
     * call it again. It returns MILLRACE_OK if the result was right, and MILLRACE_LOST if it was wrong or if CUDA
     * reports an error. A busy device may need a long time. */
    int32_t (*device_check)(millrace_device *device, millrace_error *error);

    /* --- streams and events --- */

    /* Creates a stream that synchronizes with no other stream, not even the default stream. */
    int32_t (*stream_create)(millrace_device *device, millrace_stream **stream, millrace_error *error);

    /* Returns a default stream, for measurements of its cost. stream_destroy frees only the object. */
    int32_t (*stream_default)(millrace_device *device, int32_t kind, millrace_stream **stream, millrace_error *error);

    /* Frees a stream. Its work must be done, or the device must be lost. */
    int32_t (*stream_destroy)(millrace_stream *stream, millrace_error *error);

    /* Blocks the calling thread until the stream's work is done. */
    int32_t (*stream_synchronize)(millrace_stream *stream, millrace_error *error);

    /* Makes later work on the stream wait for the point that the event refers to now. An event that was never
     * recorded delays nothing. */
    int32_t (*stream_wait)(millrace_stream *stream, millrace_event *event, millrace_error *error);

    /* Creates an event with flags MILLRACE_EVENT_*. */
    int32_t (*event_create)(millrace_device *device, int32_t flags, millrace_event **event, millrace_error *error);
    int32_t (*event_destroy)(millrace_event *event, millrace_error *error);

    /* Makes the event refer to this point of the stream instead of its previous point. */
    int32_t (*event_record)(millrace_event *event, millrace_stream *stream, millrace_error *error);

    /* Returns MILLRACE_OK if the device has reached the point (or the event was never recorded), otherwise
     * MILLRACE_NOT_READY. */
    int32_t (*event_query)(millrace_event *event, millrace_error *error);

    /* Blocks the calling thread until the device has reached the point. */
    int32_t (*event_synchronize)(millrace_event *event, millrace_error *error);

    /* Returns the milliseconds from one timed event to another, negative if `to` came first. Returns
     * MILLRACE_NOT_READY until the device has reached both. The resolution is about half a
     * microsecond. */
    int32_t (*event_elapsed)(millrace_event *from, millrace_event *to, float *milliseconds, millrace_error *error);

    /* --- memory --- */

    /* Allocates page-locked host memory (bytes > 0), usable with every GPU. */
    int32_t (*host_alloc)(millrace_device *device, uint64_t bytes, void **memory, millrace_error *error);
    int32_t (*host_free)(millrace_device *device, void *memory, millrace_error *error);

    /* Allocates device memory (bytes > 0), not in stream order. It may wait for all work on the device. */
    int32_t (*device_alloc)(millrace_device *device, uint64_t bytes, uint64_t *address, millrace_error *error);
    int32_t (*device_free)(millrace_device *device, uint64_t address, millrace_error *error);

    /* Creates a separate pool for stream-ordered allocation. limit is the maximum that the pool reserves from the
     * device (rounded up to the device's granularity; 0 means no limit). threshold is the number of unused bytes
     * that the pool keeps at a synchronization. Memory freed on one stream serves another stream only after the
     * freeing stream has reached the free, so the pool never makes a stream wait for another. It returns
     * MILLRACE_UNAVAILABLE if the GPU or its driver has no such pools, and MILLRACE_OUT_OF_MEMORY if the limit is
     * below the driver's allocation size. */
    int32_t (*pool_create)(millrace_device *device, uint64_t limit, uint64_t threshold, millrace_pool **pool,
                           millrace_error *error);

    /* Frees a pool. Memory that is still allocated returns to the device when it is freed. */
    int32_t (*pool_destroy)(millrace_pool *pool, millrace_error *error);

    /* Allocates memory (bytes > 0, aligned to 256) and frees it, in the order of the stream. */
    int32_t (*pool_alloc)(millrace_pool *pool, millrace_stream *stream, uint64_t bytes, uint64_t *address,
                          millrace_error *error);
    int32_t (*pool_free)(millrace_pool *pool, millrace_stream *stream, uint64_t address, millrace_error *error);

    /* Returns unused memory to the device, until at most `keep` bytes are reserved. */
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

    /* Adds token to the device's completion queue when the stream reaches this point. It returns
     * MILLRACE_OUT_OF_MEMORY if the number of outstanding tokens (not reached, or not drained) has reached the
     * maximum that was passed to device_open. After a sticky fault the token never arrives. */
    int32_t (*notify)(millrace_stream *stream, uint64_t token, millrace_error *error);

    /* Returns a non-blocking eventfd that becomes readable when a token is queued. The device owns it. */
    int32_t (*completion_fd)(millrace_device *device);

    /* Removes up to `room` tokens from the queue, oldest first, without waiting. Returns their number. */
    uint32_t (*completion_drain)(millrace_device *device, uint64_t *tokens, uint32_t room);

    /* --- for tests and profilers --- */

    /* Enqueues a kernel that stalls the stream until gate_open(*ticket), or for ten seconds. At most 64 at once. */
    int32_t (*gate_enqueue)(millrace_stream *stream, uint64_t *ticket, millrace_error *error);

    /* Opens a gate. It does nothing if the gate is already open. */
    void (*gate_open)(millrace_device *device, uint64_t ticket);

    /* Opens a named NVTX range and closes it, on any thread. name has `bytes` bytes; it is truncated to 127
     * bytes and copied. */
    uint64_t (*range_start)(const char *name, size_t bytes);
    void (*range_end)(uint64_t range);

    /* --- operators of your own --- */

    /* Loads a compiled operator into a device. The image is a cubin, a fatbin or the text of PTX, with the symbols that
     * millrace/description.h specifies. The result works like an operator of the library, on this device. Loading may
     * wait for running kernels, so load operators before work begins. Returns MILLRACE_INVALID for another image or an
     * operator that needs a newer contract, and MILLRACE_UNAVAILABLE if the GPU or its driver can't run the image. */
    int32_t (*operator_load)(millrace_device *device, const void *image, uint64_t bytes, const millrace_operator **op,
                             millrace_error *error);

    /* Frees an operator that operator_load or library_open returned. While an instance of the operator exists, it does
     * nothing and returns MILLRACE_INVALID with the code 0. */
    int32_t (*operator_unload)(const millrace_operator *op, millrace_error *error);

    /* Opens NVRTC, the compiler. It needs no GPU and no driver. `path` is the path of libnvrtc.so. NULL searches beside
     * this library, and then on the system's search path. Returns MILLRACE_UNAVAILABLE if NVRTC isn't found. The
     * compiler lives as long as the process. */
    int32_t (*compiler_open)(const char *path, const millrace_compiler **compiler, millrace_error *error);

    /* Compiles the source of an operator. It returns MILLRACE_OK even if the source has errors: *compiled then has no
     * image. Calls on one compiler may overlap. */
    int32_t (*compile)(const millrace_compiler *compiler, const millrace_source *source, millrace_compiled **compiled,
                       millrace_error *error);

    /* Frees the output of compile. */
    void (*compiled_free)(millrace_compiled *compiled);

    /* Opens a library with one operator (millrace_library), which works like an operator of the kernel library, on this
     * device. `path` must contain a slash. The library lives as long as the process. Returns MILLRACE_UNAVAILABLE if the dynamic
     * linker can't open it. Returns MILLRACE_INVALID if it isn't such a library, if it was built for another version of
     * the ABI or needs a newer contract, or if its operator differs from its description. */
    int32_t (*library_open)(millrace_device *device, const char *path, const millrace_operator **op, millrace_error *error);

    /* --- the index of near-duplicates, from version 6 on --- */

    /* Returns the memory that an index needs. It doesn't access the hardware. */
    int32_t (*neardup_needs)(const millrace_neardup_parameters *parameters, millrace_neardup_memory *needs,
                             millrace_error *error);

    /* Creates an index without records. Its calls enqueue work on the stream and return, and must not overlap. If one
     * fails with a status other than MILLRACE_INVALID, the index is unusable. Returns MILLRACE_UNAVAILABLE if the GPU has
     * no cooperative launches. */
    int32_t (*neardup_create)(millrace_stream *stream, const millrace_neardup_parameters *parameters,
                              millrace_neardup **index, millrace_error *error);

    /* Frees an index. Its work must be done, or the device must be lost. */
    int32_t (*neardup_destroy)(millrace_neardup *index, millrace_error *error);

    /* Decides on the records of a batch and inserts their keys. The previous batch can no longer be undone. */
    int32_t (*neardup_apply)(millrace_neardup *index, const millrace_neardup_batch *batch, millrace_error *error);

    /* Removes the records of the last batch, as if it had not been applied. Returns MILLRACE_INVALID unless the last
     * successful call was neardup_apply. */
    int32_t (*neardup_undo)(millrace_neardup *index, millrace_error *error);

    /* Applies records of a log. The previous batch can no longer be undone. */
    int32_t (*neardup_replay)(millrace_neardup *index, const millrace_neardup_rows *rows, millrace_error *error);
} millrace_api;

/* Returns the ABI version of the library. It never fails and doesn't access the hardware. */
uint32_t millrace_abi_version(void);

/* Returns the table, or NULL if the library's version is below `least`, which is the least version that the program
 * works with. The program must not use a table whose least_version is above its own version. It doesn't access the
 * hardware. */
const millrace_api *millrace_api_get(uint32_t least);

#ifdef __cplusplus
}
#endif

#endif /* MILLRACE_H */
