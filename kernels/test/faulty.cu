// A kernel library for tests: libmillrace with the additional operator "faulty". Every batch with a row that begins with the
// eight bytes "poison!\n" makes it lose the GPU. It never finishes a batch with a row that begins with "endless\n". Otherwise,
// its result for a row is the length of the row as a uint32. It has no parameters. If the environment variable
// MILLRACE_TEST_ENDLESS is set, crc32c also never finishes a batch with a row that begins with "endless\n".
#define millrace_api_get built_in_api_get
#include "../runtime/api.cpp"
#undef millrace_api_get

#include <stdlib.h>
#include <string.h>

#include <vector>

#include "../runtime/operator.hpp"

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMarkerBytes = 8;

__device__ bool begins_with(const uint8_t *row, const char (&marker)[kMarkerBytes + 1]) {
    for (uint32_t i = 0; i < kMarkerBytes; i++) {
        if (row[i] != static_cast<uint8_t>(marker[i])) return false;
    }
    return true;
}

// The fault is a write to an unallocated address. A kernel that doesn't end keeps one thread busy.
__global__ void faulty_rows(const uint8_t *batch, const uint32_t *offsets, uint32_t rows, uint32_t *result) {
    uint32_t row = blockIdx.x * kThreads + threadIdx.x;
    if (row >= rows) return;
    uint32_t length = offsets[row + 1] - offsets[row];
    if (length >= kMarkerBytes && begins_with(batch + offsets[row], "endless\n")) {
        for (volatile uint32_t turns = 0;; turns = turns + 1) {
        }
    }
    if (length >= kMarkerBytes && begins_with(batch + offsets[row], "poison!\n")) {
        volatile uint32_t *nowhere = reinterpret_cast<volatile uint32_t *>(static_cast<uintptr_t>(64));
        *nowhere = length;
    }
    result[row] = length;
}

int32_t faulty_create(const millrace_operator *, int32_t ordinal, const void *, size_t bytes, void **instance,
                      millrace_error *error) {
    if (bytes != 0) return fail(error, MILLRACE_INVALID, 0, "faulty: a parameter block of %zu bytes: give none", bytes);
    if (int32_t s = check(error, cudaSetDevice(ordinal), "cudaSetDevice")) return s;
    static char nothing; // the address of an instance; it has no contents
    *instance = &nothing;
    return load_kernel(faulty_rows, "loading faulty_rows", error);
}

int32_t faulty_destroy(void *, millrace_error *) { return MILLRACE_OK; }

int32_t faulty_needs(const void *, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    if (int32_t s = check_shape(shape, error)) return s;
    needs->result = shape->rows * sizeof(uint32_t);
    return MILLRACE_OK;
}

int32_t faulty_launch(const void *, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    if (int32_t s = check_shape(args, error)) return s;
    uint32_t rows = static_cast<uint32_t>(args->rows);
    if (rows == 0) return MILLRACE_OK;
    faulty_rows<<<(rows + kThreads - 1) / kThreads, kThreads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(
        reinterpret_cast<const uint8_t *>(args->batch), reinterpret_cast<const uint32_t *>(args->offsets), rows,
        reinterpret_cast<uint32_t *>(args->result));
    return check_launch(error, "faulty_rows");
}

// Loops on a row that begins with "endless\n" for as long as the GPU permits.
__global__ void endless_rows(const uint8_t *batch, const uint32_t *offsets, uint32_t rows) {
    uint32_t row = blockIdx.x * kThreads + threadIdx.x;
    if (row >= rows || offsets[row + 1] - offsets[row] < kMarkerBytes) return;
    volatile const uint32_t *end = offsets + row + 1;
    while (begins_with(batch + offsets[row], "endless\n") && *end != 0) __nanosleep(1000);
}

int32_t endless_launch(const void *instance, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    if (int32_t s = check_shape(args, error)) return s;
    uint32_t rows = static_cast<uint32_t>(args->rows);
    if (rows != 0) {
        endless_rows<<<(rows + kThreads - 1) / kThreads, kThreads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(
            reinterpret_cast<const uint8_t *>(args->batch), reinterpret_cast<const uint32_t *>(args->offsets), rows);
        if (int32_t s = check_launch(error, "endless_rows")) return s;
    }
    return kCrc32c.op.launch(instance, cuda_stream, args, error);
}

const millrace_api *extended() {
    static const millrace_operator faulty =
        make_operator("faulty", faulty_create, faulty_destroy, faulty_needs, faulty_launch);
    static millrace_operator endless = kCrc32c.op;
    static std::vector<const millrace_operator *> operators;
    static const millrace_api api = [] {
        millrace_api all = *table();
        operators.assign(all.operators, all.operators + all.operator_count);
        endless.launch = endless_launch;
        for (const millrace_operator *&op : operators) {
            if (op == &kCrc32c.op && getenv("MILLRACE_TEST_ENDLESS") != nullptr) op = &endless;
        }
        operators.push_back(&faulty);
        all.operators = operators.data();
        all.operator_count = static_cast<uint32_t>(operators.size());
        return all;
    }();
    return &api;
}

} // namespace

EXPORTED const millrace_api *millrace_api_get(uint32_t least) {
    return least <= MILLRACE_ABI_VERSION ? extended() : nullptr;
}
