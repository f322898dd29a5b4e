// CUDA objects with ownership, and CUDA errors as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <type_traits>

#include "failure.hpp"

namespace yardstick {

// Throws Failure unless the call succeeded.
inline void check(cudaError_t result, const char *call) {
    if (result == cudaSuccess) return;
    throw Failure(std::string(call) + ": " + cudaGetErrorName(result) + ": " + cudaGetErrorString(result));
}

// An owner of a CUDA object. It ignores errors when it frees the object, because they can only follow a reported
// failure.
template <class Handle, cudaError_t (*kFree)(Handle)>
struct Free {
    void operator()(Handle handle) const { (void)kFree(handle); }
};
template <class Handle, cudaError_t (*kFree)(Handle)>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Free<Handle, kFree>>;

using Stream = Owner<cudaStream_t, cudaStreamDestroy>;
using Event = Owner<cudaEvent_t, cudaEventDestroy>;
using Graph = Owner<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;
using MemoryPool = Owner<cudaMemPool_t, cudaMemPoolDestroy>;

struct FreePinned {
    void operator()(uint8_t *memory) const { (void)cudaFreeHost(memory); }
};
struct FreeDevice {
    void operator()(uint8_t *memory) const { (void)cudaFree(memory); }
};
using Pinned = std::unique_ptr<uint8_t, FreePinned>;
using DeviceMemory = std::unique_ptr<uint8_t, FreeDevice>;

// Creates a stream that doesn't synchronize with any other stream.
inline Stream make_stream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return Stream(stream);
}

// Creates an event with the flags of cudaEventCreateWithFlags.
inline Event make_event(unsigned flags) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
    return Event(event);
}

inline Pinned make_pinned(uint64_t bytes) {
    void *memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    return Pinned(static_cast<uint8_t *>(memory));
}

inline DeviceMemory make_device_memory(uint64_t bytes) {
    void *memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return DeviceMemory(static_cast<uint8_t *>(memory));
}

inline void copy_in(cudaStream_t stream, uint8_t *to, const uint8_t *from, uint64_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync in");
}

inline void copy_out(cudaStream_t stream, uint8_t *to, const uint8_t *from, uint64_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync out");
}

inline void record(cudaEvent_t event, cudaStream_t stream) { check(cudaEventRecord(event, stream), "cudaEventRecord"); }

inline void synchronize(cudaStream_t stream) { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

// The seconds between two timed events, both of which must have been reached.
inline double seconds_between(cudaEvent_t from, cudaEvent_t to) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
}

} // namespace yardstick
