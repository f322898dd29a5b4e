// One C function per entry of the kernel library's function table, because cgo can't call function pointers.
#ifndef MILLRACE_BRIDGE_H
#define MILLRACE_BRIDGE_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "millrace.h"
#include "millrace/description.h"

// The outcomes of opening a library.
enum { mr_loaded, mr_not_opened, mr_no_symbols, mr_too_old, mr_too_new };

// Opens the library and gets its function table. On failure, `message` holds the text from dlopen or dlsym. *abi is the
// library's ABI version. Unless the library is too old, *least is the lowest ABI version that it accepts from a program.
// The library stays open, because the CUDA runtime in it can't be unloaded.
static inline int mr_load(const char *path, const millrace_api **table, uint32_t *abi, uint32_t *least, char *message, size_t room) {
    message[0] = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(message, room, "%s", dlerror());
        return mr_not_opened;
    }
    uint32_t (*version)(void);
    const millrace_api *(*get)(uint32_t);
    *(void **)&version = dlsym(library, "millrace_abi_version");
    *(void **)&get = dlsym(library, "millrace_api_get");
    if (version == NULL || get == NULL) {
        snprintf(message, room, "%s", version == NULL ? "millrace_abi_version" : "millrace_api_get");
        return mr_no_symbols;
    }
    *abi = version();
    *table = *abi >= MILLRACE_ABI_LEAST ? get(MILLRACE_ABI_LEAST) : NULL;
    if (*table == NULL) return mr_too_old;
    *least = (*table)->least_version;
    return *least > MILLRACE_ABI_VERSION ? mr_too_new : mr_loaded;
}

static inline const millrace_operator *mr_find_operator(const millrace_api *a, const char *name, size_t bytes) {
    for (uint32_t i = 0; i < a->operator_count; i++) {
        const char *candidate = a->operators[i]->name;
        if (strlen(candidate) == bytes && memcmp(candidate, name, bytes) == 0) return a->operators[i];
    }
    return NULL;
}

static inline int32_t mr_versions(const millrace_api *a, int32_t *runtime, int32_t *driver, millrace_error *e) { return a->versions(runtime, driver, e); }
static inline int32_t mr_device_count(const millrace_api *a, int32_t *count, millrace_error *e) { return a->device_count(count, e); }
static inline int32_t mr_device_info(const millrace_api *a, int32_t ordinal, millrace_device_info *info, millrace_error *e) { return a->device_info(ordinal, info, e); }
static inline int32_t mr_device_open(const millrace_api *a, int32_t ordinal, uint32_t completions, millrace_device **d, millrace_error *e) { return a->device_open(ordinal, completions, d, e); }
static inline int32_t mr_device_close(const millrace_api *a, millrace_device *d, millrace_error *e) { return a->device_close(d, e); }
static inline int32_t mr_device_check(const millrace_api *a, millrace_device *d, millrace_error *e) { return a->device_check(d, e); }

static inline int32_t mr_stream_create(const millrace_api *a, millrace_device *d, millrace_stream **s, millrace_error *e) { return a->stream_create(d, s, e); }
static inline int32_t mr_stream_default(const millrace_api *a, millrace_device *d, int32_t kind, millrace_stream **s, millrace_error *e) { return a->stream_default(d, kind, s, e); }
static inline int32_t mr_stream_destroy(const millrace_api *a, millrace_stream *s, millrace_error *e) { return a->stream_destroy(s, e); }
static inline int32_t mr_stream_synchronize(const millrace_api *a, millrace_stream *s, millrace_error *e) { return a->stream_synchronize(s, e); }
static inline int32_t mr_event_create(const millrace_api *a, millrace_device *d, int32_t flags, millrace_event **v, millrace_error *e) { return a->event_create(d, flags, v, e); }
static inline int32_t mr_event_destroy(const millrace_api *a, millrace_event *v, millrace_error *e) { return a->event_destroy(v, e); }
static inline int32_t mr_event_record(const millrace_api *a, millrace_event *v, millrace_stream *s, millrace_error *e) { return a->event_record(v, s, e); }
static inline int32_t mr_event_query(const millrace_api *a, millrace_event *v, millrace_error *e) { return a->event_query(v, e); }
static inline int32_t mr_event_synchronize(const millrace_api *a, millrace_event *v, millrace_error *e) { return a->event_synchronize(v, e); }
static inline int32_t mr_event_elapsed(const millrace_api *a, millrace_event *from, millrace_event *to, float *ms, millrace_error *e) { return a->event_elapsed(from, to, ms, e); }

static inline int32_t mr_host_alloc(const millrace_api *a, millrace_device *d, uint64_t n, void **m, millrace_error *e) { return a->host_alloc(d, n, m, e); }
static inline int32_t mr_host_free(const millrace_api *a, millrace_device *d, void *m, millrace_error *e) { return a->host_free(d, m, e); }
static inline int32_t mr_device_alloc(const millrace_api *a, millrace_device *d, uint64_t n, uint64_t *m, millrace_error *e) { return a->device_alloc(d, n, m, e); }
static inline int32_t mr_device_free(const millrace_api *a, millrace_device *d, uint64_t m, millrace_error *e) { return a->device_free(d, m, e); }
static inline int32_t mr_pool_create(const millrace_api *a, millrace_device *d, uint64_t limit, uint64_t threshold, millrace_pool **p, millrace_error *e) { return a->pool_create(d, limit, threshold, p, e); }
static inline int32_t mr_pool_destroy(const millrace_api *a, millrace_pool *p, millrace_error *e) { return a->pool_destroy(p, e); }
static inline int32_t mr_pool_alloc(const millrace_api *a, millrace_pool *p, millrace_stream *s, uint64_t n, uint64_t *m, millrace_error *e) { return a->pool_alloc(p, s, n, m, e); }
static inline int32_t mr_pool_free(const millrace_api *a, millrace_pool *p, millrace_stream *s, uint64_t m, millrace_error *e) { return a->pool_free(p, s, m, e); }
static inline int32_t mr_pool_trim(const millrace_api *a, millrace_pool *p, uint64_t keep, millrace_error *e) { return a->pool_trim(p, keep, e); }
static inline int32_t mr_pool_stats(const millrace_api *a, millrace_pool *p, millrace_pool_stats *s, millrace_error *e) { return a->pool_stats(p, s, e); }


static inline int32_t mr_create(const millrace_operator *op, int32_t ordinal, const void *params, size_t n, void **instance, millrace_error *e) { return op->create(op, ordinal, params, n, instance, e); }
static inline int32_t mr_destroy(const millrace_operator *op, void *instance, millrace_error *e) { return op->destroy(instance, e); }
static inline int32_t mr_needs(const millrace_operator *op, const void *instance, const millrace_shape *shape, millrace_needs *needs, millrace_error *e) { return op->needs(instance, shape, needs, e); }

static inline int32_t mr_operator_load(const millrace_api *a, millrace_device *d, const void *image, size_t n, const millrace_operator **op, millrace_error *e) { return a->operator_load(d, image, n, op, e); }
static inline int32_t mr_operator_unload(const millrace_api *a, const millrace_operator *op, millrace_error *e) { return a->operator_unload(op, e); }
static inline int32_t mr_library_open(const millrace_api *a, millrace_device *d, const char *path, const millrace_operator **op, millrace_error *e) { return a->library_open(d, path, op, e); }
static inline size_t mr_description_bytes(const millrace_operator *op) { return ((const millrace_description *)op->description)->bytes; }

static inline int32_t mr_compiler_open(const millrace_api *a, const char *path, const millrace_compiler **c, millrace_error *e) { return a->compiler_open(path, c, e); }
static inline int32_t mr_compile(const millrace_api *a, const millrace_compiler *c, const millrace_source *source, millrace_compiled **compiled, millrace_error *e) { return a->compile(c, source, compiled, e); }
static inline void mr_compiled_free(const millrace_api *a, millrace_compiled *compiled) { a->compiled_free(compiled); }

// Version 5 of the ABI has no index of near-duplicates.
static inline int mr_has_neardup(const millrace_api *a) { return a->size >= offsetof(millrace_api, neardup_replay) + sizeof a->neardup_replay; }
static inline int32_t mr_neardup_needs(const millrace_api *a, const millrace_neardup_parameters *p, millrace_neardup_memory *m, millrace_error *e) { return a->neardup_needs(p, m, e); }
static inline int32_t mr_neardup_create(const millrace_api *a, millrace_stream *s, const millrace_neardup_parameters *p, millrace_neardup **n, millrace_error *e) { return a->neardup_create(s, p, n, e); }
static inline int32_t mr_neardup_destroy(const millrace_api *a, millrace_neardup *n, millrace_error *e) { return a->neardup_destroy(n, e); }
static inline int32_t mr_neardup_apply(const millrace_api *a, millrace_neardup *n, const millrace_neardup_batch *b, millrace_error *e) { return a->neardup_apply(n, b, e); }
static inline int32_t mr_neardup_undo(const millrace_api *a, millrace_neardup *n, millrace_error *e) { return a->neardup_undo(n, e); }
static inline int32_t mr_neardup_replay(const millrace_api *a, millrace_neardup *n, const millrace_neardup_rows *r, millrace_error *e) { return a->neardup_replay(n, r, e); }

// A call that enqueues work, as a value. The kind determines the meaning of the fields. They are in the order of the
// call's arguments. The kinds have the values of device.CommandKind.
enum { mr_copy_in = 1, mr_copy_out, mr_fill, mr_launch, mr_record, mr_wait, mr_notify };
typedef struct mr_command {
    int32_t kind;
    millrace_stream *stream;
    millrace_event *event;
    void *host;
    uint64_t address, bytes, value;
    const millrace_operator *op;
    const void *instance;
    millrace_launch launch;
} mr_command;

static inline int32_t mr_carry_out(const millrace_api *a, const mr_command *c, millrace_error *e) {
    switch (c->kind) {
    case mr_copy_in: return a->copy_in(c->stream, c->address, c->host, c->bytes, e);
    case mr_copy_out: return a->copy_out(c->stream, c->host, c->address, c->bytes, e);
    case mr_fill: return a->fill(c->stream, c->address, (uint8_t)c->value, c->bytes, e);
    case mr_launch: return a->launch(c->stream, c->op, c->instance, &c->launch, e);
    case mr_record: return a->event_record(c->event, c->stream, e);
    case mr_wait: return a->stream_wait(c->stream, c->event, e);
    default: return a->notify(c->stream, c->value, e);
    }
}

// Carries out commands until one fails; *done is set to the number of commands that succeeded.
static inline int32_t mr_enqueue(const millrace_api *a, const mr_command *list, int32_t n, int32_t *done, millrace_error *e) {
    int32_t status = MILLRACE_OK;
    for (*done = 0; *done < n; (*done)++) {
        status = mr_carry_out(a, &list[*done], e);
        if (status != MILLRACE_OK) break;
    }
    return status;
}

static inline int32_t mr_completion_fd(const millrace_api *a, millrace_device *d) { return a->completion_fd(d); }
static inline uint32_t mr_completion_drain(const millrace_api *a, millrace_device *d, uint64_t *tokens, uint32_t room) { return a->completion_drain(d, tokens, room); }
static inline int32_t mr_gate_enqueue(const millrace_api *a, millrace_stream *s, uint64_t *ticket, millrace_error *e) { return a->gate_enqueue(s, ticket, e); }
static inline void mr_gate_open(const millrace_api *a, millrace_device *d, uint64_t ticket) { a->gate_open(d, ticket); }
static inline uint64_t mr_range_start(const millrace_api *a, const char *name, size_t n) { return a->range_start(name, n); }
static inline void mr_range_end(const millrace_api *a, uint64_t range) { a->range_end(range); }

#endif
