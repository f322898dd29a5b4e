// Gates: kernels that stall their stream until the host opens them. Only tests use them.
#include <string.h>

#include "../system.cuh"
#include "runtime.hpp"

namespace millrace {

namespace {

// A gate opens after this time, in nanoseconds of the GPU's clock, so that a failing test ends.
constexpr uint64_t kGivesWayAfter = 10ull * 1000 * 1000 * 1000;

__global__ void gate_kernel(GateSlot *slot, uint64_t ticket) {
    volatile GateSlot *shared = slot;
    uint64_t start = nanoseconds();
    while (shared->opened != ticket && nanoseconds() - start < kGivesWayAfter) __nanosleep(1000);
    shared->done = ticket;
    __threadfence_system();
}

// Returns the slot of a finished gate, or kGates. The caller holds the mutex.
uint32_t free_slot(const Gates *gates) {
    for (uint32_t i = 0; i < kGates; i++) {
        if (__atomic_load_n(&gates->slots[i].done, __ATOMIC_ACQUIRE) == gates->tickets[i]) return i;
    }
    return kGates;
}

int32_t enqueue_locked(Gates *gates, cudaStream_t stream, uint64_t *ticket, millrace_error *error) {
    uint32_t i = free_slot(gates);
    if (i == kGates) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "%u gates are closed, which is the maximum", kGates);
    uint64_t next = gates->last_ticket + 1;
    gate_kernel<<<1, 1, 0, stream>>>(gates->device_slots + i, next);
    if (int32_t s = check_launch(error, "gate")) return s;
    gates->last_ticket = gates->tickets[i] = *ticket = next;
    return MILLRACE_OK;
}

} // namespace

int32_t gates_open(Gates *gates, millrace_error *error) {
    void *memory = nullptr;
    size_t bytes = kGates * sizeof(GateSlot);
    if (int32_t s = pin(&memory, bytes, cudaHostAllocMapped, error)) return s;
    memset(memory, 0, bytes);
    gates->slots = static_cast<GateSlot *>(memory);
    pthread_mutex_init(&gates->mutex, nullptr);
    void *address = nullptr;
    if (int32_t s = check(error, cudaHostGetDevicePointer(&address, memory, 0), "cudaHostGetDevicePointer")) return s;
    gates->device_slots = static_cast<GateSlot *>(address);
    return load_kernel(gate_kernel, "loading gate", error);
}

void gates_close(Gates *gates) {
    if (gates->slots == nullptr) return;
    pthread_mutex_destroy(&gates->mutex);
    (void)cudaFreeHost(gates->slots);
}

int32_t gate_enqueue(millrace_stream *stream, uint64_t *ticket, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    Gates *gates = &stream->device->gates;
    pthread_mutex_lock(&gates->mutex);
    int32_t status = enqueue_locked(gates, stream->stream, ticket, error);
    pthread_mutex_unlock(&gates->mutex);
    return status;
}

void gate_open(millrace_device *device, uint64_t ticket) {
    Gates *gates = &device->gates;
    pthread_mutex_lock(&gates->mutex);
    for (uint32_t i = 0; i < kGates; i++) {
        if (gates->tickets[i] == ticket) __atomic_store_n(&gates->slots[i].opened, ticket, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&gates->mutex);
}

} // namespace millrace
