// Pools: device memory in stream order.
#include <new>

#include "runtime.hpp"

namespace millrace {

namespace {

// CUDA may serve an allocation with memory that another stream is still to free, by making this stream wait for
// that one. Then lanes that should be independent would wait for each other unseen, so it is turned off: such an
// allocation takes fresh memory, or fails at the pool's cap.
int32_t configure(cudaMemPool_t pool, uint64_t threshold, millrace_error *error) {
    int off = 0;
    if (int32_t s = check(error, cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &off),
                          "cudaMemPoolSetAttribute(ReuseAllowInternalDependencies)")) {
        return s;
    }
    return check(error, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
                 "cudaMemPoolSetAttribute(ReleaseThreshold)");
}

int32_t read_attribute(millrace_pool *pool, cudaMemPoolAttr attribute, uint64_t *value, millrace_error *error) {
    return check(error, cudaMemPoolGetAttribute(pool->pool, attribute, value), "cudaMemPoolGetAttribute");
}

} // namespace

int32_t pool_create(millrace_device *device, uint64_t limit, uint64_t threshold, millrace_pool **out,
                    millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypeNone;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device->ordinal;
    properties.maxSize = limit;
    millrace_pool *pool = new (std::nothrow) millrace_pool{device, nullptr};
    if (pool == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a pool object");
    int32_t status = check(error, cudaMemPoolCreate(&pool->pool, &properties), "cudaMemPoolCreate");
    if (status == MILLRACE_OK) {
        status = configure(pool->pool, threshold, error);
        if (status != MILLRACE_OK) (void)cudaMemPoolDestroy(pool->pool);
    }
    if (status != MILLRACE_OK) {
        delete pool;
        return status;
    }
    *out = pool;
    return MILLRACE_OK;
}

int32_t pool_destroy(millrace_pool *pool, millrace_error *error) {
    int32_t status = use(pool->device, error);
    if (status == MILLRACE_OK) status = check(error, cudaMemPoolDestroy(pool->pool), "cudaMemPoolDestroy");
    delete pool;
    return status;
}

int32_t pool_alloc(millrace_pool *pool, millrace_stream *stream, uint64_t bytes, uint64_t *address,
                   millrace_error *error) {
    if (int32_t s = use(pool->device, error)) return s;
    void *memory = nullptr;
    if (int32_t s = check(error, cudaMallocFromPoolAsync(&memory, bytes, pool->pool, stream->stream),
                          "cudaMallocFromPoolAsync")) {
        return s;
    }
    *address = reinterpret_cast<uint64_t>(memory);
    return MILLRACE_OK;
}

int32_t pool_free(millrace_pool *pool, millrace_stream *stream, uint64_t address, millrace_error *error) {
    if (int32_t s = use(pool->device, error)) return s;
    return check(error, cudaFreeAsync(reinterpret_cast<void *>(address), stream->stream), "cudaFreeAsync");
}

int32_t pool_trim(millrace_pool *pool, uint64_t keep, millrace_error *error) {
    if (int32_t s = use(pool->device, error)) return s;
    return check(error, cudaMemPoolTrimTo(pool->pool, keep), "cudaMemPoolTrimTo");
}

int32_t pool_set_threshold(millrace_pool *pool, uint64_t threshold, millrace_error *error) {
    if (int32_t s = use(pool->device, error)) return s;
    return check(error, cudaMemPoolSetAttribute(pool->pool, cudaMemPoolAttrReleaseThreshold, &threshold),
                 "cudaMemPoolSetAttribute(ReleaseThreshold)");
}

int32_t pool_stats(millrace_pool *pool, millrace_pool_stats *stats, millrace_error *error) {
    if (int32_t s = use(pool->device, error)) return s;
    if (int32_t s = read_attribute(pool, cudaMemPoolAttrUsedMemCurrent, &stats->used, error)) return s;
    if (int32_t s = read_attribute(pool, cudaMemPoolAttrReservedMemCurrent, &stats->reserved, error)) return s;
    if (int32_t s = read_attribute(pool, cudaMemPoolAttrUsedMemHigh, &stats->used_high, error)) return s;
    return read_attribute(pool, cudaMemPoolAttrReservedMemHigh, &stats->reserved_high, error);
}

} // namespace millrace
