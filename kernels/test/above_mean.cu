// An operator with its own host code, for tests. It counts the bytes of a record that are above `percent` percent of
// their mean. The first kernel adds up the bytes of each record in scratch, and the second kernel counts.
#include <millrace/library.cuh>

#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#include <new>

MILLRACE_OPERATOR(above_mean, 1)
MILLRACE_PARAM(uint32_t, percent, 100, 1, 1000)
MILLRACE_RESULT(uint32_t, above)
MILLRACE_RESULT(uint8_t, mean)
MILLRACE_REASON(empty, "the record is empty")

namespace {

constexpr uint32_t kThreads = 128, kLanes = 32, kWarps = kThreads / kLanes;

struct Params {
    uint32_t percent;
};

struct Record {
    uint32_t above;
    uint32_t mean; // one byte, and padding
};

struct Instance {
    int32_t ordinal;
    Params params;
};

template <class T>
__device__ T sum_of_warp(T value) {
    for (uint32_t step = kLanes / 2; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
    return value;
}

// One warp per record adds up its bytes.
__global__ void above_mean_sums(const uint8_t *batch, const uint32_t *offsets, uint32_t rows, unsigned long long *sums) {
    uint32_t row = blockIdx.x * kWarps + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    if (row >= rows) return;
    unsigned long long sum = 0;
    for (uint32_t i = offsets[row] + lane; i < offsets[row + 1]; i += kLanes) sum += batch[i];
    sum = sum_of_warp(sum);
    if (lane == 0) sums[row] = sum;
}

// One warp per record counts the bytes b with 100 * b * size > percent * sum.
__global__ void above_mean_counts(const uint8_t *batch, const uint32_t *offsets, uint32_t rows, Params params,
                                  const unsigned long long *sums, Record *result, uint8_t *status) {
    uint32_t row = blockIdx.x * kWarps + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    if (row >= rows) return;
    uint32_t start = offsets[row], size = offsets[row + 1] - start, above = 0;
    unsigned long long least = params.percent * sums[row];
    for (uint32_t i = lane; i < size; i += kLanes) above += 100ull * batch[start + i] * size > least;
    above = sum_of_warp(above);
    if (lane != 0) return;
    result[row] = size == 0 ? Record{0, 0} : Record{above, static_cast<uint32_t>(sums[row] / size)};
    status[row] = size == 0 ? empty : MILLRACE_DONE;
}

int32_t failed(millrace_error *error, int32_t status, cudaError_t result) {
    error->status = status, error->code = result;
    snprintf(error->message, sizeof error->message, "%s", cudaGetErrorString(result));
    return status;
}

int32_t create(const millrace_operator *, int32_t ordinal, const void *params, size_t, void **out, millrace_error *error) {
    cudaFuncAttributes attributes; // loads the kernels
    cudaError_t result = cudaSetDevice(ordinal);
    if (result == cudaSuccess) result = cudaFuncGetAttributes(&attributes, above_mean_sums);
    if (result == cudaSuccess) result = cudaFuncGetAttributes(&attributes, above_mean_counts);
    if (result != cudaSuccess) return failed(error, MILLRACE_UNAVAILABLE, result);
    Instance *instance = new (std::nothrow) Instance{ordinal, {}};
    if (instance == nullptr) return failed(error, MILLRACE_OUT_OF_MEMORY, cudaErrorMemoryAllocation);
    memcpy(&instance->params, params, sizeof instance->params);
    *out = instance;
    return MILLRACE_OK;
}

int32_t destroy(void *instance, millrace_error *) {
    delete static_cast<Instance *>(instance);
    return MILLRACE_OK;
}

int32_t needs(const void *, const millrace_shape *shape, millrace_needs *needs, millrace_error *) {
    needs->scratch = shape->rows * sizeof(unsigned long long);
    return MILLRACE_OK;
}

int32_t launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Instance *instance = static_cast<const Instance *>(self);
    cudaError_t result = cudaSetDevice(instance->ordinal);
    if (result != cudaSuccess) return failed(error, MILLRACE_LOST, result);
    const uint8_t *batch = reinterpret_cast<const uint8_t *>(args->batch);
    const uint32_t *offsets = reinterpret_cast<const uint32_t *>(args->offsets);
    unsigned long long *sums = reinterpret_cast<unsigned long long *>(args->scratch);
    const uint32_t rows = static_cast<uint32_t>(args->rows), blocks = (rows + kWarps - 1) / kWarps;
    cudaStream_t stream = static_cast<cudaStream_t>(cuda_stream);
    above_mean_sums<<<blocks, kThreads, 0, stream>>>(batch, offsets, rows, sums);
    above_mean_counts<<<blocks, kThreads, 0, stream>>>(batch, offsets, rows, instance->params, sums,
                                                        reinterpret_cast<Record *>(args->result),
                                                        reinterpret_cast<uint8_t *>(args->status));
    result = cudaGetLastError();
    return result == cudaSuccess ? MILLRACE_OK : failed(error, MILLRACE_LAUNCH, result);
}

} // namespace

MILLRACE_HOST_CODE(create, destroy, needs, launch)
