// minhash: permuted MinHash over the character shingles of every row of a ragged batch.
//
// Parameter block (16 bytes, little-endian): uint32 k (1 to 256), uint32 hashes (1 to 1024), uint64 seed.
// Result record: `hashes` little-endian uint32, the signature. Scratch: the tile index (ragged.cuh).
#include <string.h>

#include <new>

#include "minhash_kernels.cuh"
#include "runtime/operator.hpp"

namespace millrace {

namespace {

// The most bytes of payloads and results of a batch that is not copied. Measured: docs/benchmarks.md, latency.
constexpr uint64_t kMinhashMostInPlace = 64 << 10;

constexpr uint32_t kMostHashes = 1024;
constexpr uint32_t kBlocksPerMultiprocessor = 8; // for the preparing kernel

struct Minhash {
    int32_t ordinal;
    uint32_t multiprocessors;
    uint32_t k, hashes;
    const PermutationWords *permutations; // on the device, `hashes` of them
};

int32_t minhash_load(millrace_error *error) {
    if (int32_t s = load_kernel(minhash_prepare, "loading minhash_prepare", error)) return s;
    return load_kernel(minhash_tiles, "loading minhash_tiles", error);
}

int32_t parse(const void *params, size_t bytes, Minhash *instance, uint64_t *seed, millrace_error *error) {
    if (bytes != 16) {
        return fail(error, MILLRACE_INVALID, 0,
                    "minhash: a parameter block of %zu bytes: it takes 16 (uint32 k, uint32 hashes, uint64 seed)", bytes);
    }
    memcpy(&instance->k, params, 4);
    memcpy(&instance->hashes, static_cast<const char *>(params) + 4, 4);
    memcpy(seed, static_cast<const char *>(params) + 8, 8);
    if (instance->k < 1 || instance->k > kMostShingleCharacters) {
        return fail(error, MILLRACE_INVALID, 0, "minhash: k=%u: give 1 to %u", instance->k, kMostShingleCharacters);
    }
    if (instance->hashes < 1 || instance->hashes > kMostHashes) {
        return fail(error, MILLRACE_INVALID, 0, "minhash: hashes=%u: give 1 to %u", instance->hashes, kMostHashes);
    }
    return MILLRACE_OK;
}

int32_t make_instance(Minhash *instance, uint64_t seed, millrace_error *error) {
    if (int32_t s = check(error, cudaSetDevice(instance->ordinal), "cudaSetDevice")) return s;
    if (int32_t s = minhash_load(error)) return s;
    if (int32_t s = multiprocessors(instance->ordinal, &instance->multiprocessors, error)) return s;
    PermutationWords table[kMostHashes];
    for (uint32_t i = 0; i < instance->hashes; i++) table[i] = permutation_words(next_permutation(&seed));
    void *copy = nullptr;
    if (int32_t s = upload(table, instance->hashes * sizeof table[0], &copy, error)) return s;
    instance->permutations = static_cast<const PermutationWords *>(copy);
    return MILLRACE_OK;
}

int32_t minhash_create(int32_t ordinal, const void *params, size_t bytes, void **out, millrace_error *error) {
    Minhash *instance = new (std::nothrow) Minhash{ordinal, 0, 0, 0, nullptr};
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for minhash");
    uint64_t seed = 0;
    int32_t status = parse(params, bytes, instance, &seed, error);
    if (status == MILLRACE_OK) status = make_instance(instance, seed, error);
    if (status != MILLRACE_OK) {
        delete instance;
        return status;
    }
    *out = instance;
    return MILLRACE_OK;
}

int32_t minhash_destroy(void *self, millrace_error *error) {
    Minhash *instance = static_cast<Minhash *>(self);
    int32_t status = check(error, cudaSetDevice(instance->ordinal), "cudaSetDevice");
    if (status == MILLRACE_OK) {
        status = check(error, cudaFree(const_cast<PermutationWords *>(instance->permutations)), "cudaFree");
    }
    delete instance;
    return status;
}

int32_t minhash_needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    if (int32_t s = check_shape(shape, error)) return s;
    needs->scratch = tile_index_bytes(static_cast<uint32_t>(shape->bytes), kMinhashTileBytes);
    needs->result = shape->rows * static_cast<const Minhash *>(self)->hashes * sizeof(uint32_t);
    needs->in_place = shape->bytes + needs->result <= kMinhashMostInPlace;
    return MILLRACE_OK;
}

int32_t minhash_launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Minhash *instance = static_cast<const Minhash *>(self);
    if (int32_t s = check_shape(&args->shape, error)) return s;
    if (args->shape.rows == 0) return MILLRACE_OK;
    cudaStream_t stream = static_cast<cudaStream_t>(cuda_stream);
    uint32_t rows = static_cast<uint32_t>(args->shape.rows), bytes = static_cast<uint32_t>(args->shape.bytes);
    const uint32_t *offsets = reinterpret_cast<const uint32_t *>(args->offsets);
    uint32_t *index = reinterpret_cast<uint32_t *>(args->scratch);
    uint32_t *result = reinterpret_cast<uint32_t *>(args->result);
    uint32_t tiles = tile_count(bytes, kMinhashTileBytes), entries = bytes == 0 ? 0 : tiles + 1;
    uint64_t values = args->shape.rows * instance->hashes;

    uint32_t blocks = blocks_for(values > entries ? values : entries, kMinhashThreads,
                                 instance->multiprocessors * kBlocksPerMultiprocessor);
    minhash_prepare<<<blocks, kMinhashThreads, 0, stream>>>(offsets, rows, bytes, entries, values, index, result);
    if (int32_t s = check_launch(error, "minhash_prepare")) return s;
    if (bytes == 0) return MILLRACE_OK;
    minhash_tiles<<<tiles, kMinhashThreads, 0, stream>>>(
        reinterpret_cast<const uint8_t *>(args->batch), offsets, bytes, instance->k, halo_bytes(instance->k),
        instance->permutations, instance->hashes, index, result);
    return check_launch(error, "minhash_tiles");
}

} // namespace

extern const OperatorEntry kMinhash = {{"minhash", 1, minhash_create, minhash_destroy, minhash_needs, minhash_launch}, minhash_load};

} // namespace millrace
