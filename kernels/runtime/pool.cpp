// Pools: device memory in stream order.
#include <new>

#include "runtime.hpp"

namespace millrace {

namespace {

// By default, CUDA may serve an allocation with memory that another stream has not freed yet, and make this stream wait for the
// other. Lanes that should be independent would then silently wait for each other. This function disables such reuse, so the
// allocation uses other memory or fails at the pool's limit.
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

// Returns an error for a GPU without memory pools, such as some virtual GPUs.
int32_t check_pools(int ordinal, millrace_error *error) {
    int supported = 0;
    if (int32_t s = check(error, cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, ordinal),
                          "cudaDeviceGetAttribute")) {
        return s;
    }
    if (supported) return MILLRACE_OK;
    return fail(error, MILLRACE_UNAVAILABLE, 0, "this GPU has no memory pools (cudaDevAttrMemoryPoolsSupported is 0)");
}

// Returns the error for a driver that rejects a pool. Apart from the limit, the properties are always the same. Such a driver is
// therefore too old, because limits were introduced after pools.
int32_t explain_refusal(uint64_t limit, millrace_error *error) {
    int runtime = 0, driver = 0;
    (void)cudaRuntimeGetVersion(&runtime); // stays 0 on an error, which the message shows
    (void)cudaDriverGetVersion(&driver);
    millrace_error refusal = *error;
    return fail(error, MILLRACE_UNAVAILABLE, 0,
                "the driver, for CUDA %d.%d, refuses a memory pool of at most %llu bytes as CUDA %d.%d makes it: update the "
                "driver (%s)",
                driver / 1000, driver % 1000 / 10, static_cast<unsigned long long>(limit), runtime / 1000, runtime % 1000 / 10,
                refusal.message);
}

int32_t make(millrace_pool *pool, uint64_t limit, uint64_t threshold, millrace_error *error) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypeNone;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = pool->device->ordinal;
    properties.maxSize = limit;
    int32_t status = check(error, cudaMemPoolCreate(&pool->pool, &properties), "cudaMemPoolCreate");
    if (status == MILLRACE_OK) {
        status = configure(pool->pool, threshold, error);
        if (status != MILLRACE_OK) (void)cudaMemPoolDestroy(pool->pool);
    }
    return status == MILLRACE_INVALID ? explain_refusal(limit, error) : status;
}

// Checks that a pool can allocate memory at all. Drivers allocate memory in pieces, so a pool with a limit below one piece can't
// allocate any.
int32_t try_pool(millrace_pool *pool, uint64_t limit, millrace_error *error) {
    void *memory = nullptr;
    int32_t status = check(error, cudaMallocFromPoolAsync(&memory, 1, pool->pool, pool->device->probe.stream),
                           "cudaMallocFromPoolAsync");
    if (status == MILLRACE_OK) return check(error, cudaFreeAsync(memory, pool->device->probe.stream), "cudaFreeAsync");
    if (status != MILLRACE_OUT_OF_MEMORY && status != MILLRACE_INVALID) return status;
    return fail(error, MILLRACE_OUT_OF_MEMORY, error->code,
                "a memory pool of at most %llu bytes gives no memory: raise MILLRACE_SCRATCH_LIMIT, to 64MiB or "
                "more, or free memory on the GPU",
                static_cast<unsigned long long>(limit));
}

} // namespace

int32_t pool_create(millrace_device *device, uint64_t limit, uint64_t threshold, millrace_pool **out,
                    millrace_error *error) {
    if (int32_t s = use(device, error)) return s;
    if (int32_t s = check_pools(device->ordinal, error)) return s;
    millrace_pool *pool = new (std::nothrow) millrace_pool{device, nullptr};
    if (pool == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for a pool object");
    // try_pool uses a separate pool, because its test affects the pool's counters.
    int32_t status = limit == 0 ? MILLRACE_OK : make(pool, limit, threshold, error);
    if (status == MILLRACE_OK && limit != 0) {
        status = try_pool(pool, limit, error);
        (void)cudaMemPoolDestroy(pool->pool);
    }
    if (status == MILLRACE_OK) status = make(pool, limit, threshold, error);
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
