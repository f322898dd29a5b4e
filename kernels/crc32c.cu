// crc32c: the CRC-32C of every row of a ragged batch.
//
// runtime/builtin.cpp declares the operator. Scratch contains the tile index (ragged.cuh).
#include <new>

#include "crc32c_kernels.cuh"
#include "crc32c_persistent.cuh"
#include "persistent_operator.hpp"
#include "runtime/builtin.hpp"
#include "runtime/description.hpp"
#include "runtime/operator.hpp"

namespace millrace {

namespace {

// The maximum size of a batch's payloads and results for processing in place. docs/benchmarks.md (latency) has the measurement.
constexpr uint64_t kCrc32cMostInPlace = 8 << 10;

constexpr uint32_t kBlocksPerMultiprocessor = 16; // the maximum: 2048 threads, 12 KiB of shared memory each

struct Crc32c {
    int32_t ordinal;
    uint32_t multiprocessors;
    ResultSize size;
    const Crc32cTables *tables; // on the device
};

int32_t crc32c_load(millrace_error *error) {
    if (int32_t s = load_kernel(crc32c_prepare, "loading crc32c_prepare", error)) return s;
    return load_kernel(crc32c_tiles, "loading crc32c_tiles", error);
}

int32_t make_instance(Crc32c *instance, millrace_error *error) {
    if (int32_t s = check(error, cudaSetDevice(instance->ordinal), "cudaSetDevice")) return s;
    if (int32_t s = crc32c_load(error)) return s;
    if (int32_t s = multiprocessors(instance->ordinal, &instance->multiprocessors, error)) return s;
    Crc32cTables tables;
    crc32c_make_tables(&tables);
    void *copy = nullptr;
    if (int32_t s = upload(&tables, sizeof tables, &copy, error)) return s;
    instance->tables = static_cast<const Crc32cTables *>(copy);
    return MILLRACE_OK;
}

int32_t crc32c_create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out,
                      millrace_error *error) {
    ResultSize size;
    if (int32_t s = bind_block(&kCrc32cDeclared.head, params, bytes, &size, error)) return s;
    Crc32c *instance = new (std::nothrow) Crc32c{ordinal, 0, size, nullptr};
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for crc32c");
    if (int32_t s = make_instance(instance, error)) {
        delete instance;
        return s;
    }
    *out = instance;
    return MILLRACE_OK;
}

int32_t crc32c_destroy(void *self, millrace_error *error) {
    Crc32c *instance = static_cast<Crc32c *>(self);
    int32_t status = check(error, cudaSetDevice(instance->ordinal), "cudaSetDevice");
    if (status == MILLRACE_OK) {
        status = check(error, cudaFree(const_cast<Crc32cTables *>(instance->tables)), "cudaFree");
    }
    delete instance;
    return status;
}

int32_t crc32c_needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    if (int32_t s = check_shape(shape, error)) return s;
    needs->scratch = tile_index_bytes(static_cast<uint32_t>(shape->bytes), kCrc32cTileBytes);
    needs->result = layout_of(static_cast<const Crc32c *>(self)->size, shape->rows, shape->bytes).end;
    needs->in_place = shape->bytes + needs->result <= kCrc32cMostInPlace;
    return MILLRACE_OK;
}

int32_t crc32c_launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Crc32c *instance = static_cast<const Crc32c *>(self);
    if (int32_t s = check_shape(args, error)) return s;
    if (args->rows == 0) return MILLRACE_OK;
    cudaStream_t stream = static_cast<cudaStream_t>(cuda_stream);
    uint32_t rows = static_cast<uint32_t>(args->rows), bytes = static_cast<uint32_t>(args->bytes);
    const uint32_t *offsets = reinterpret_cast<const uint32_t *>(args->offsets);
    uint32_t *index = reinterpret_cast<uint32_t *>(args->scratch);
    uint32_t *result = reinterpret_cast<uint32_t *>(args->result);
    uint32_t tiles = tile_count(bytes, kCrc32cTileBytes), entries = bytes == 0 ? 0 : tiles + 1;
    uint32_t most = instance->multiprocessors * kBlocksPerMultiprocessor;

    crc32c_prepare<<<blocks_for(rows > entries ? rows : entries, kCrc32cThreads, most), kCrc32cThreads, 0, stream>>>(
        instance->tables, offsets, rows, bytes, entries, index, result);
    if (int32_t s = check_launch(error, "crc32c_prepare")) return s;
    if (bytes == 0) return MILLRACE_OK;
    crc32c_tiles<<<tiles < most ? tiles : most, kCrc32cThreads, 0, stream>>>(
        instance->tables, reinterpret_cast<const uint8_t *>(args->batch), offsets, bytes, index, result);
    return check_launch(error, "crc32c_tiles");
}

constexpr millrace_operator kOperator =
    make_operator("crc32c", crc32c_create, crc32c_destroy, crc32c_needs, crc32c_launch, &kCrc32cDeclared);

int32_t crc32c_persistent_create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out,
                                 millrace_error *error) {
    return create_persistent(crc32c_persistent, "crc32c_persistent", kOperator, ordinal, params, bytes, out, error);
}

int32_t crc32c_persistent_needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    return persistent_needs(kOperator, self, shape, needs, error);
}

int32_t crc32c_persistent_launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Crc32c *instance = static_cast<const Crc32c *>(self);
    PersistentMemory memory;
    if (int32_t s = persistent_memory(kOperator, self, *args, &memory, error)) return s;
    crc32c_persistent<<<1, kCrc32cThreads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(instance->tables, memory);
    return check_launch(error, "crc32c_persistent");
}

} // namespace

extern const OperatorEntry kCrc32c = {kOperator, crc32c_load};
extern const OperatorEntry kCrc32cPersistent = {
    make_operator("crc32c:persistent", crc32c_persistent_create, crc32c_destroy, crc32c_persistent_needs,
                  crc32c_persistent_launch),
    nullptr};

} // namespace millrace
