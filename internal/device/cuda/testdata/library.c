/* A kernel library without a GPU, for the tests of package cuda. Streams do their work immediately, in host memory.
 *
 * Filling memory with the byte 0xdd causes a sticky fault, like an illegal address in a running kernel. Afterwards, no
 * token arrives, and device_check returns MILLRACE_LOST. After that, every other call also returns MILLRACE_LOST.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "millrace.h"

struct millrace_device { int fd; uint64_t tokens[1024]; uint32_t queued; int faulty, seen; };
struct millrace_stream { millrace_device *device; };
struct millrace_event { millrace_device *device; double at; };
struct millrace_pool { uint64_t used, high; };

static int live; /* objects and allocations that have not been freed */

static int32_t fail(millrace_error *error, int32_t status, int code, const char *message) {
    error->status = status, error->code = code;
    strcpy(error->message, message);
    return status;
}
static int32_t lost(millrace_device *d, millrace_error *e) {
    return d->seen ? fail(e, MILLRACE_LOST, 700, "an illegal memory access") : MILLRACE_OK;
}
static void *made(size_t bytes) { live++; return calloc(1, bytes); }
static int32_t freed(void *p) { live--; free(p); return MILLRACE_OK; }
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
#define UNUSED(x) ((void)(x))

static int32_t versions(int32_t *r, int32_t *d, millrace_error *e) { UNUSED(e); *r = 12040, *d = 13000; return 0; }
static int32_t device_count(int32_t *n, millrace_error *e) { UNUSED(e); *n = 2; return 0; }
static int32_t device_info(int32_t o, millrace_device_info *i, millrace_error *e) {
    strcpy(i->name, "no GPU"), strcpy(i->uuid, o ? "GPU-one" : "GPU-zero");
    i->memory = 1 << 20, i->ordinal = o, i->compute_major = 9, i->multiprocessors = 132;
    return versions(&i->runtime_version, &i->driver_version, e);
}
static int32_t device_open(int32_t o, uint32_t n, millrace_device **d, millrace_error *e) {
    UNUSED(o); UNUSED(n); UNUSED(e);
    *d = made(sizeof **d);
    (*d)->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return 0;
}
static int32_t device_close(millrace_device *d, millrace_error *e) {
    close(d->fd);
    freed(d);
    return live ? fail(e, MILLRACE_INVALID, live, "objects were not freed") : 0;
}
static int32_t device_check(millrace_device *d, millrace_error *e) { d->seen = d->faulty; return lost(d, e); }

static int32_t stream_create(millrace_device *d, millrace_stream **s, millrace_error *e) { *s = made(sizeof **s); (*s)->device = d; return lost(d, e); }
static int32_t stream_default(millrace_device *d, int32_t k, millrace_stream **s, millrace_error *e) { UNUSED(k); return stream_create(d, s, e); }
static int32_t stream_destroy(millrace_stream *s, millrace_error *e) { UNUSED(e); return freed(s); }
static int32_t stream_synchronize(millrace_stream *s, millrace_error *e) { return lost(s->device, e); }
static int32_t stream_wait(millrace_stream *s, millrace_event *v, millrace_error *e) { UNUSED(v); return lost(s->device, e); }
static int32_t event_create(millrace_device *d, int32_t t, millrace_event **v, millrace_error *e) { UNUSED(t); *v = made(sizeof **v); (*v)->device = d; return lost(d, e); }
static int32_t event_destroy(millrace_event *v, millrace_error *e) { UNUSED(e); return freed(v); }
static int32_t event_record(millrace_event *v, millrace_stream *s, millrace_error *e) { v->at = now(); return lost(s->device, e); }
static int32_t event_query(millrace_event *v, millrace_error *e) { return lost(v->device, e); }
static int32_t event_elapsed(millrace_event *f, millrace_event *t, float *ms, millrace_error *e) { *ms = (float)(t->at - f->at); return lost(f->device, e); }

static int32_t host_alloc(millrace_device *d, uint64_t n, void **m, millrace_error *e) { *m = made(n); return lost(d, e); }
static int32_t host_free(millrace_device *d, void *m, millrace_error *e) { UNUSED(d); UNUSED(e); return freed(m); }
static int32_t device_alloc(millrace_device *d, uint64_t n, uint64_t *m, millrace_error *e) {
    if (n > 1 << 20) return fail(e, MILLRACE_OUT_OF_MEMORY, 2, "no room");
    *m = (uint64_t)made(n);
    return lost(d, e);
}
static int32_t device_free(millrace_device *d, uint64_t m, millrace_error *e) { UNUSED(d); UNUSED(e); return freed((void *)m); }
static int32_t pool_create(millrace_device *d, uint64_t l, uint64_t t, millrace_pool **p, millrace_error *e) { UNUSED(l); UNUSED(t); *p = made(sizeof **p); return lost(d, e); }
static int32_t pool_destroy(millrace_pool *p, millrace_error *e) { UNUSED(e); return freed(p); }
static int32_t pool_alloc(millrace_pool *p, millrace_stream *s, uint64_t n, uint64_t *m, millrace_error *e) { p->used++; return device_alloc(s->device, n, m, e); }
static int32_t pool_free(millrace_pool *p, millrace_stream *s, uint64_t m, millrace_error *e) { p->used--; return device_free(s->device, m, e); }
static int32_t pool_trim(millrace_pool *p, uint64_t n, millrace_error *e) { UNUSED(p); UNUSED(n); UNUSED(e); return 0; }
static int32_t pool_stats(millrace_pool *p, millrace_pool_stats *s, millrace_error *e) { UNUSED(e); s->used = p->used, s->reserved = 2, s->used_high = 3, s->reserved_high = 4; return 0; }

static int32_t copy_in(millrace_stream *s, uint64_t to, const void *from, uint64_t n, millrace_error *e) { memcpy((void *)to, from, n); return lost(s->device, e); }
static int32_t copy_out(millrace_stream *s, void *to, uint64_t from, uint64_t n, millrace_error *e) { memcpy(to, (void *)from, n); return lost(s->device, e); }
static int32_t fill(millrace_stream *s, uint64_t to, uint8_t v, uint64_t n, millrace_error *e) {
    s->device->faulty |= v == 0xdd;
    memset((void *)to, v, n);
    return lost(s->device, e);
}
static int32_t launch(millrace_stream *s, const millrace_operator *op, const void *i, const millrace_launch *l, millrace_error *e) {
    return s->device->seen ? lost(s->device, e) : op->launch(i, s, l, e);
}
static int32_t notify(millrace_stream *s, uint64_t token, millrace_error *e) {
    millrace_device *d = s->device;
    if (d->queued == 1024) return fail(e, MILLRACE_OUT_OF_MEMORY, 0, "drain some");
    if (!d->faulty) {
        d->tokens[d->queued++] = token;
        eventfd_write(d->fd, 1);
    }
    return lost(d, e);
}
static int32_t completion_fd(millrace_device *d) { return d->fd; }
static uint32_t completion_drain(millrace_device *d, uint64_t *tokens, uint32_t room) {
    uint32_t n = d->queued < room ? d->queued : room;
    memcpy(tokens, d->tokens, n * sizeof *tokens);
    memmove(d->tokens, d->tokens + n, (d->queued - n) * sizeof *tokens);
    d->queued -= n;
    return n;
}
static int32_t gate_enqueue(millrace_stream *s, uint64_t *t, millrace_error *e) { *t = 1; return lost(s->device, e); }
static void gate_open(millrace_device *d, uint64_t t) { UNUSED(d); UNUSED(t); }
static uint64_t range_start(const char *name, size_t n) { UNUSED(name); return n; }
static void range_end(uint64_t r) { UNUSED(r); }

/* The operator "length": each row's number of bytes as a uint32. */
static int32_t op_create(const millrace_operator *self, int32_t o, const void *p, size_t n, void **i, millrace_error *e) {
    UNUSED(self); UNUSED(o); UNUSED(p);
    if (n) return fail(e, MILLRACE_INVALID, 0, "length takes no parameters");
    *i = made(1);
    return 0;
}
static int32_t op_destroy(void *i, millrace_error *e) { UNUSED(e); return freed(i); }
static int32_t op_needs(const void *i, const millrace_shape *s, millrace_needs *n, millrace_error *e) { UNUSED(i); UNUSED(e); n->scratch = s->bytes, n->result = 4 * s->rows; return 0; }
static int32_t op_launch(const void *i, void *s, const millrace_launch *l, millrace_error *e) {
    UNUSED(i); UNUSED(s); UNUSED(e);
    uint32_t *offsets = (uint32_t *)l->offsets, *result = (uint32_t *)l->result;
    for (uint64_t r = 0; r < l->rows; r++) result[r] = offsets[r + 1] - offsets[r];
    return 0;
}
static const millrace_operator length = {sizeof length, 1, "length", NULL, op_create, op_destroy, op_needs, op_launch};
static const millrace_operator *const operators[] = {&length};

static const millrace_api table = {
    sizeof table, MILLRACE_ABI_VERSION, MILLRACE_ABI_LEAST, 1, operators,
    versions, device_count, device_info, device_open, device_close, device_check,
    stream_create, stream_default, stream_destroy, stream_synchronize, stream_wait,
    event_create, event_destroy, event_record, event_query, event_query, event_elapsed,
    host_alloc, host_free, device_alloc, device_free,
    pool_create, pool_destroy, pool_alloc, pool_free, pool_trim, pool_trim, pool_stats,
    copy_in, copy_out, fill, launch,
    notify, completion_fd, completion_drain,
    gate_enqueue, gate_open, range_start, range_end,
};
uint32_t millrace_abi_version(void) { return MILLRACE_ABI_VERSION; }
const millrace_api *millrace_api_get(uint32_t least) { return least <= MILLRACE_ABI_VERSION ? &table : NULL; }
