// Memory that is not allocated in stream order, and copies.
#include "runtime.hpp"

namespace millrace {

namespace {

void *pointer(uint64_t address) { return reinterpret_cast<void *>(address); }

} // namespace

int32_t pin(void **memory, size_t bytes, unsigned flags, millrace_error *error) {
    cudaError_t result = cudaHostAlloc(memory, bytes, flags);
    int32_t status = check(error, result, "cudaHostAlloc");
    // The arguments are valid, so these errors mean that the system doesn't lock that much memory.
    if (status == MILLRACE_INVALID || result == cudaErrorOperatingSystem) {
        status = error->status = MILLRACE_OUT_OF_MEMORY;
    }
    return status;
}

int32_t host_alloc(millrace_device *device, uint64_t bytes, void **memory, millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    return pin(memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped, error);
}

int32_t host_free(millrace_device *device, void *memory, millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    return check(error, cudaFreeHost(memory), "cudaFreeHost");
}

int32_t device_alloc(millrace_device *device, uint64_t bytes, uint64_t *address, millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    void *memory = nullptr;
    if (int32_t s = check(error, cudaMalloc(&memory, bytes), "cudaMalloc")) return s;
    *address = reinterpret_cast<uint64_t>(memory);
    return MILLRACE_OK;
}

int32_t device_free(millrace_device *device, uint64_t address, millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    return check(error, cudaFree(pointer(address)), "cudaFree");
}

int32_t copy_in(millrace_stream *stream, uint64_t to, const void *from, uint64_t bytes, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    return check(error, cudaMemcpyAsync(pointer(to), from, bytes, cudaMemcpyHostToDevice, stream->stream),
                 "cudaMemcpyAsync to the device");
}

int32_t copy_out(millrace_stream *stream, void *to, uint64_t from, uint64_t bytes, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    return check(error, cudaMemcpyAsync(to, pointer(from), bytes, cudaMemcpyDeviceToHost, stream->stream),
                 "cudaMemcpyAsync to the host");
}

int32_t fill(millrace_stream *stream, uint64_t to, uint8_t value, uint64_t bytes, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    return check(error, cudaMemsetAsync(pointer(to), value, bytes, stream->stream), "cudaMemsetAsync");
}

} // namespace millrace
