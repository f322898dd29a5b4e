// neardup: the keys of near-duplicates for every row of a ragged batch. millrace_neardup (neardup.cu) then decides on the records.
//
// runtime/builtin.cpp declares the operator. minhash writes signatures to scratch, and a second kernel computes their keys.
// Scratch contains the signatures, and then the scratch of minhash.
#include <string.h>

#include <new>

#include "math/permutation.cuh"
#include "neardup_keys.cuh"
#include "runtime/builtin.hpp"
#include "runtime/description.hpp"
#include "runtime/operator.hpp"

namespace millrace {

namespace {

const millrace_operator &kSigner = kMinhash.op;

struct NeardupParameters {
    uint32_t bands, rows, k, seed; // the parameter block
    uint32_t hashes() const { return bands * rows; }
};

struct NeardupKeys {
    void *signer; // the instance of minhash
    NeardupParameters parameters;
};

int32_t parse(const void *params, size_t bytes, NeardupParameters *parsed, millrace_error *error) {
    ResultSize size;
    if (int32_t s = bind_block(&kNeardupDeclared.head, params, bytes, &size, error)) return s;
    memcpy(parsed, params, sizeof *parsed);
    if (parsed->hashes() <= kMostHashes) return MILLRACE_OK;
    return fail(error, MILLRACE_INVALID, 0, "neardup: bands times rows is %u: give %u at most", parsed->hashes(), kMostHashes);
}

int32_t neardup_keys_load(millrace_error *error) { return load_kernel(neardup_write_keys, "loading neardup_write_keys", error); }

int32_t neardup_keys_create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out,
                            millrace_error *error) {
    NeardupKeys made = {};
    if (int32_t s = parse(params, bytes, &made.parameters, error)) return s;
    uint32_t block[3] = {made.parameters.k, made.parameters.hashes(), made.parameters.seed};
    if (int32_t s = kSigner.create(&kSigner, ordinal, block, sizeof block, &made.signer, error)) return s;
    int32_t status = neardup_keys_load(error); // create has set the device
    NeardupKeys *instance = status == MILLRACE_OK ? new (std::nothrow) NeardupKeys(made) : nullptr;
    if (instance == nullptr) {
        millrace_error ignored = {};
        (void)kSigner.destroy(made.signer, &ignored);
        return status != MILLRACE_OK ? status : fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for neardup");
    }
    *out = instance;
    return MILLRACE_OK;
}

int32_t neardup_keys_destroy(void *self, millrace_error *error) {
    NeardupKeys *instance = static_cast<NeardupKeys *>(self);
    int32_t status = kSigner.destroy(instance->signer, error);
    delete instance;
    return status;
}

int32_t neardup_keys_needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    const NeardupKeys *instance = static_cast<const NeardupKeys *>(self);
    if (int32_t s = kSigner.needs(instance->signer, shape, needs, error)) return s;
    needs->scratch += needs->result; // the signatures
    needs->result = shape->rows * instance->parameters.bands * sizeof(uint64_t);
    return MILLRACE_OK;
}

int32_t neardup_keys_launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const NeardupKeys *instance = static_cast<const NeardupKeys *>(self);
    const NeardupParameters &p = instance->parameters;
    millrace_launch sign = *args;
    sign.result = args->scratch;
    sign.scratch = args->scratch + args->rows * p.hashes() * sizeof(uint32_t);
    if (int32_t s = kSigner.launch(instance->signer, cuda_stream, &sign, error)) return s;
    if (args->rows == 0) return MILLRACE_OK;
    uint64_t keys = args->rows * p.bands, blocks = (keys + kNeardupKeyThreads - 1) / kNeardupKeyThreads;
    neardup_write_keys<<<static_cast<uint32_t>(blocks), kNeardupKeyThreads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(
        reinterpret_cast<const uint32_t *>(sign.result), p.bands, p.rows, keys, reinterpret_cast<uint64_t *>(args->result));
    return check_launch(error, "neardup_write_keys");
}

} // namespace

extern const OperatorEntry kNeardupKeys = {
    make_operator("neardup", neardup_keys_create, neardup_keys_destroy, neardup_keys_needs, neardup_keys_launch,
                  &kNeardupDeclared),
    neardup_keys_load};

} // namespace millrace
