// minhash: NeMo Curator's MinHash over the character shingles of every row of a ragged batch.
//
// runtime/builtin.cpp declares the operator. Scratch contains the tile index (ragged.cuh) and a tile counter.
//
// The operator has four names with the same parameters and results. `minhash` and minhash:plain run the plain kernel, which is
// the fastest one on an H100. minhash:warp-specialized and minhash:cluster run the kernels in their names. Their create fails if
// the device lacks a required feature. minhash:persistent is for `worker bench` (persistent_operator.hpp).
#include <string.h>

#include <new>

#include "minhash_persistent.cuh"
#include "minhash_variants.cuh"
#include "persistent_operator.hpp"
#include "runtime/builtin.hpp"
#include "runtime/description.hpp"
#include "runtime/operator.hpp"

namespace millrace {

namespace {

// The maximum size of a batch's payloads and results for processing in place. docs/benchmarks.md (latency) has the measurement.
constexpr uint64_t kMinhashMostInPlace = 64 << 10;

struct Minhash {
    MinhashDevice device;
    MinhashVariant variant;
    ResultSize size;
    uint32_t k, hashes;
    uint32_t hash_seed;              // seed of the shingles' hashes
    const Permutation *permutations; // on the device; `hashes` entries
};

int32_t parse(const void *params, size_t bytes, Minhash *instance, uint32_t *seed, millrace_error *error) {
    if (int32_t s = bind_block(&kMinhashDeclared.head, params, bytes, &instance->size, error)) return s;
    memcpy(&instance->k, params, 4);
    memcpy(&instance->hashes, static_cast<const char *>(params) + 4, 4);
    memcpy(seed, static_cast<const char *>(params) + 8, 4);
    return MILLRACE_OK;
}

int32_t make_instance(Minhash *instance, uint32_t seed, millrace_error *error) {
    if (int32_t s = load_minhash(instance->device, error)) return s;
    Permutation table[kMostHashes];
    Permutations permutations(seed);
    for (uint32_t i = 0; i < instance->hashes; i++) table[i] = permutations.next();
    instance->hash_seed = table[0].a;
    void *copy = nullptr;
    if (int32_t s = upload(table, instance->hashes * sizeof table[0], &copy, error)) return s;
    instance->permutations = static_cast<const Permutation *>(copy);
    return MILLRACE_OK;
}

// Implements `create` for a variant.
int32_t create_with(MinhashVariant variant, int32_t ordinal, const void *params, size_t bytes, void **out,
                    millrace_error *error) {
    Minhash parsed = {};
    uint32_t seed = 0;
    if (int32_t s = parse(params, bytes, &parsed, &seed, error)) return s;
    if (int32_t s = find_device(ordinal, &parsed.device, error)) return s;
    parsed.variant = variant;
    if (int32_t s = require(parsed.device, parsed.variant, error)) return s;
    Minhash *instance = new (std::nothrow) Minhash(parsed);
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for minhash");
    if (int32_t s = make_instance(instance, seed, error)) {
        delete instance;
        return s;
    }
    *out = instance;
    return MILLRACE_OK;
}

int32_t minhash_create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out,
                       millrace_error *error) {
    return create_with(MinhashVariant::plain, ordinal, params, bytes, out, error);
}

template <MinhashVariant kVariant>
int32_t variant_create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out,
                       millrace_error *error) {
    return create_with(kVariant, ordinal, params, bytes, out, error);
}

int32_t minhash_destroy(void *self, millrace_error *error) {
    Minhash *instance = static_cast<Minhash *>(self);
    int32_t status = check(error, cudaSetDevice(instance->device.ordinal), "cudaSetDevice");
    if (status == MILLRACE_OK) {
        status = check(error, cudaFree(const_cast<Permutation *>(instance->permutations)), "cudaFree");
    }
    delete instance;
    return status;
}

int32_t minhash_needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    if (int32_t s = check_shape(shape, error)) return s;
    uint64_t index = tile_index_bytes(static_cast<uint32_t>(shape->bytes), kMinhashTileBytes);
    needs->scratch = index == 0 ? 0 : index + sizeof(uint32_t); // the tile counter follows the index
    needs->result = layout_of(static_cast<const Minhash *>(self)->size, shape->rows, shape->bytes).end;
    needs->in_place = shape->bytes + needs->result <= kMinhashMostInPlace;
    return MILLRACE_OK;
}

MinhashWork work_of(const Minhash &instance, const millrace_launch &args) {
    MinhashWork work = {};
    work.batch = reinterpret_cast<const uint8_t *>(args.batch);
    work.offsets = reinterpret_cast<const uint32_t *>(args.offsets);
    work.bytes = static_cast<uint32_t>(args.bytes);
    work.tiles = tile_count(work.bytes, kMinhashTileBytes);
    work.k = instance.k, work.halo = halo_bytes(instance.k);
    work.seed = instance.hash_seed, work.permutations = instance.permutations, work.hashes = instance.hashes;
    work.index = reinterpret_cast<const uint32_t *>(args.scratch);
    work.taken = reinterpret_cast<uint32_t *>(args.scratch) + work.tiles + 1;
    work.result = reinterpret_cast<uint32_t *>(args.result);
    return work;
}

int32_t minhash_launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Minhash *instance = static_cast<const Minhash *>(self);
    if (int32_t s = check_shape(args, error)) return s;
    if (args->rows == 0) return MILLRACE_OK;
    cudaStream_t stream = static_cast<cudaStream_t>(cuda_stream);
    MinhashWork work = work_of(*instance, *args);
    if (int32_t s = launch_prepare(instance->device, work, args->rows, stream, error)) return s;
    if (work.bytes == 0) return MILLRACE_OK;
    return launch_tiles(instance->device, instance->variant, work, stream, error);
}

int32_t minhash_load(millrace_error *error) {
    int ordinal = 0;
    if (int32_t s = check(error, cudaGetDevice(&ordinal), "cudaGetDevice")) return s;
    MinhashDevice device;
    if (int32_t s = find_device(ordinal, &device, error)) return s;
    return load_minhash(device, error);
}

constexpr millrace_operator minhash_operator(const char *name, decltype(millrace_operator::create) create,
                                             const void *description = nullptr) {
    return make_operator(name, create, minhash_destroy, minhash_needs, minhash_launch, description);
}

constexpr millrace_operator kOperator = minhash_operator("minhash", minhash_create, &kMinhashDeclared);

int32_t minhash_persistent_create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes,
                                  void **out, millrace_error *error) {
    return create_persistent(minhash_persistent, "minhash_persistent", kOperator, ordinal, params, bytes, out, error);
}

int32_t minhash_persistent_needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    return persistent_needs(kOperator, self, shape, needs, error);
}

int32_t minhash_persistent_launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Minhash *instance = static_cast<const Minhash *>(self);
    PersistentMemory memory;
    if (int32_t s = persistent_memory(kOperator, self, *args, &memory, error)) return s;
    minhash_persistent<<<1, kMinhashThreads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(
        instance->k, halo_bytes(instance->k), instance->permutations, instance->hashes, memory);
    return check_launch(error, "minhash_persistent");
}

} // namespace

extern const OperatorEntry kMinhash = {kOperator, minhash_load};
extern const OperatorEntry kMinhashPlain = {
    minhash_operator("minhash:plain", variant_create<MinhashVariant::plain>), minhash_load};
extern const OperatorEntry kMinhashSpecialized = {
    minhash_operator("minhash:warp-specialized", variant_create<MinhashVariant::specialized>), minhash_load};
extern const OperatorEntry kMinhashCluster = {
    minhash_operator("minhash:cluster", variant_create<MinhashVariant::cluster>), minhash_load};
extern const OperatorEntry kMinhashPersistent = {
    make_operator("minhash:persistent", minhash_persistent_create, minhash_destroy, minhash_persistent_needs,
                  minhash_persistent_launch),
    nullptr};

} // namespace millrace
