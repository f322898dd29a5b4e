// The fake CUDA runtime. Every function first checks whether it must fail.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <map>
#include <mutex>

#include "control.hpp"

struct FakeStream {};
struct FakeEvent {
    double at; // milliseconds
};
struct FakePool {
    size_t limit;
    uint64_t used, high;
};

#define ENTER() \
    do { \
        if (int code = fake_enter(__func__)) return static_cast<cudaError_t>(code); \
    } while (0)

namespace {

// The size of a piece. Drivers allocate memory for pools in pieces, so a pool with a lower limit can't allocate.
constexpr size_t kPiece = 32 << 20;

std::mutex mutex;
std::map<const void *, FakeCall> kernels;
std::map<void *, std::pair<FakePool *, size_t>> pooled;

double milliseconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

cudaError_t allocate(void **memory, size_t bytes) {
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

} // namespace

const char *cudaGetErrorName(cudaError_t) { return "cudaErrorInjected"; }
const char *cudaGetErrorString(cudaError_t error) {
    static thread_local char text[64];
    snprintf(text, sizeof text, "injected error %d", static_cast<int>(error));
    return text;
}
cudaError_t cudaGetLastError() { ENTER(); return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { ENTER(); *version = 12040; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<cudaError_t>(code);
    *version = settings.driver;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<cudaError_t>(code);
    *count = settings.gpus;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int ordinal) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<cudaError_t>(code);
    memset(static_cast<void *>(properties), 0, sizeof *properties);
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    snprintf(properties->name, sizeof properties->name, "fake GPU %d with %s connections", ordinal,
             connections == nullptr ? "8" : connections);
    properties->uuid.bytes[15] = static_cast<char>(ordinal);
    properties->totalGlobalMem = 1ull << 34;
    properties->major = settings.compute[ordinal] / 10, properties->minor = settings.compute[ordinal] % 10;
    properties->multiProcessorCount = 132, properties->pciBusID = 0x4b + ordinal;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int ordinal) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<cudaError_t>(code);
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrComputeCapabilityMajor: *value = settings.compute[ordinal] / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = settings.compute[ordinal] % 10; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrMemoryPoolsSupported: *value = settings.pools; break;
    }
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { ENTER(); return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { ENTER(); fake_wait(); return cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { ENTER(); *stream = new FakeStream; return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { ENTER(); delete stream; return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { ENTER(); return fake_hangs() ? cudaErrorNotReady : cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { ENTER(); fake_wait(); return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { ENTER(); return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { ENTER(); *event = new FakeEvent{0}; return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { ENTER(); delete event; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) { ENTER(); event->at = milliseconds(); return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { ENTER(); return fake_hangs() ? cudaErrorNotReady : cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { ENTER(); fake_wait(); return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    ENTER();
    *ms = static_cast<float>(to->at - from->at);
    return fake_hangs() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) { ENTER(); return allocate(memory, bytes); }
cudaError_t cudaFreeHost(void *memory) { ENTER(); fake_wait(); free(memory); return cudaSuccess; }
cudaError_t cudaMalloc(void **memory, size_t bytes) { ENTER(); return allocate(memory, bytes); }
cudaError_t cudaFree(void *memory) { ENTER(); fake_wait(); free(memory); return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void **memory, size_t bytes, cudaMemPool_t pool, cudaStream_t) {
    ENTER();
    std::lock_guard<std::mutex> guard(mutex);
    if (pool->limit != 0 && (pool->limit < kPiece || pool->used + bytes > pool->limit)) return cudaErrorMemoryAllocation;
    cudaError_t error = allocate(memory, bytes);
    if (error != cudaSuccess) return error;
    pooled[*memory] = {pool, bytes};
    pool->used += bytes;
    if (pool->used > pool->high) pool->high = pool->used;
    return cudaSuccess;
}
cudaError_t cudaFreeAsync(void *memory, cudaStream_t) {
    ENTER();
    std::lock_guard<std::mutex> guard(mutex);
    auto found = pooled.find(memory);
    if (found != pooled.end()) {
        found->second.first->used -= found->second.second;
        pooled.erase(found);
    }
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<cudaError_t>(code);
    if (properties->maxSize != 0 && !settings.limits) return cudaErrorInvalidValue;
    *pool = new FakePool{properties->maxSize, 0, 0};
    return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { ENTER(); delete pool; return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { ENTER(); return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { ENTER(); return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
    ENTER();
    bool high = attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh;
    *static_cast<uint64_t *>(value) = high ? pool->high : pool->used;
    return cudaSuccess;
}

// Work has no effect if a setting makes work hang.
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    ENTER();
    if (!fake_hangs()) memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) {
    ENTER();
    if (!fake_hangs()) memset(to, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*function)(void *), void *argument) {
    ENTER();
    if (!fake_hangs()) function(argument);
    return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void *kernel, dim3, dim3, void **arguments, size_t, cudaStream_t) {
    FakeSettings settings;
    if (int code = fake_enter(__func__, &settings)) return static_cast<cudaError_t>(code);
    if (fake_hangs() || settings.mute) return cudaSuccess;
    FakeCall call;
    {
        std::lock_guard<std::mutex> guard(mutex);
        call = kernels.at(kernel);
    }
    call(kernel, arguments);
    return cudaSuccess;
}
cudaError_t fake_load(const void *kernel, FakeCall call) {
    if (int code = fake_enter("cudaFuncGetAttributes")) return static_cast<cudaError_t>(code);
    std::lock_guard<std::mutex> guard(mutex);
    kernels[kernel] = call;
    return cudaSuccess;
}
