// Streams and events.
#include <new>

#include "runtime.hpp"

namespace millrace {

int32_t stream_create(millrace_device *device, millrace_stream **out, millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    millrace_stream *stream = new (std::nothrow) millrace_stream{device, nullptr, true};
    if (stream == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a stream object");
    if (int32_t s = check(error, cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking),
                          "cudaStreamCreateWithFlags")) {
        delete stream;
        return s;
    }
    *out = stream;
    return MILLRACE_OK;
}

int32_t stream_default(millrace_device *device, int32_t kind, millrace_stream **out, millrace_error *error) {
    if (kind != MILLRACE_LEGACY_DEFAULT && kind != MILLRACE_PER_THREAD_DEFAULT) {
        return fail(error, MILLRACE_INVALID, 0, "no default stream has the number %d", kind);
    }
    cudaStream_t handle = kind == MILLRACE_LEGACY_DEFAULT ? cudaStreamLegacy : cudaStreamPerThread;
    millrace_stream *stream = new (std::nothrow) millrace_stream{device, handle, false};
    if (stream == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a stream object");
    *out = stream;
    return MILLRACE_OK;
}

int32_t stream_destroy(millrace_stream *stream, millrace_error *error) {
    int32_t status = use(stream->device, error);
    if (status == MILLRACE_OK && stream->own) status = check(error, cudaStreamDestroy(stream->stream), "cudaStreamDestroy");
    delete stream;
    return status;
}

int32_t stream_synchronize(millrace_stream *stream, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    return check(error, cudaStreamSynchronize(stream->stream), "cudaStreamSynchronize");
}

int32_t stream_wait(millrace_stream *stream, millrace_event *event, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    return check(error, cudaStreamWaitEvent(stream->stream, event->event, 0), "cudaStreamWaitEvent");
}

int32_t launch(millrace_stream *stream, const millrace_operator *op, const void *instance,
               const millrace_launch *args, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    return op->launch(instance, stream->stream, args, error);
}

int32_t event_create(millrace_device *device, int32_t flags, millrace_event **out, millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    millrace_event *event = new (std::nothrow) millrace_event{device, nullptr};
    if (event == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for an event object");
    unsigned cuda_flags = flags & MILLRACE_EVENT_TIMED ? cudaEventDefault : cudaEventDisableTiming;
    if (flags & MILLRACE_EVENT_BLOCKING) cuda_flags |= cudaEventBlockingSync;
    if (int32_t s = check(error, cudaEventCreateWithFlags(&event->event, cuda_flags), "cudaEventCreateWithFlags")) {
        delete event;
        return s;
    }
    *out = event;
    return MILLRACE_OK;
}

int32_t event_destroy(millrace_event *event, millrace_error *error) {
    int32_t status = use(event->device, error);
    if (status == MILLRACE_OK) status = check(error, cudaEventDestroy(event->event), "cudaEventDestroy");
    delete event;
    return status;
}

int32_t event_record(millrace_event *event, millrace_stream *stream, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    return check(error, cudaEventRecord(event->event, stream->stream), "cudaEventRecord");
}

int32_t event_query(millrace_event *event, millrace_error *error) {
    if (int32_t s = use(event->device, error)) return s;
    return check(error, cudaEventQuery(event->event), "cudaEventQuery");
}

int32_t event_synchronize(millrace_event *event, millrace_error *error) {
    if (int32_t s = use(event->device, error)) return s;
    return check(error, cudaEventSynchronize(event->event), "cudaEventSynchronize");
}

int32_t event_elapsed(millrace_event *from, millrace_event *to, float *milliseconds, millrace_error *error) {
    if (int32_t s = use(from->device, error)) return s;
    return check(error, cudaEventElapsedTime(milliseconds, from->event, to->event), "cudaEventElapsedTime");
}

} // namespace millrace
