// Code shared by operators: their tables of constants.
#include "operator.hpp"

namespace millrace {

int32_t copy_and_wait(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, millrace_error *error) {
    cudaStream_t stream = nullptr;
    if (int32_t s = check(error, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                          "cudaStreamCreateWithFlags")) {
        return s;
    }
    int32_t status = check(error, cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
    if (status == MILLRACE_OK) status = check(error, cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    (void)cudaStreamDestroy(stream);
    return status;
}

int32_t upload(const void *table, size_t bytes, void **copy, millrace_error *error) {
    void *memory = nullptr;
    if (int32_t s = check(error, cudaMalloc(&memory, bytes), "cudaMalloc")) return s;
    if (int32_t s = copy_and_wait(memory, table, bytes, cudaMemcpyHostToDevice, error)) {
        (void)cudaFree(memory);
        return s;
    }
    *copy = memory;
    return MILLRACE_OK;
}

} // namespace millrace
