// mix: computes a result as large as the batch with an adjustable amount of arithmetic. The operator is only for measurements, in
// which a kernel should take as long as a copy. Its result has no meaning, and MILLRACE_OPERATORS doesn't accept it.
//
// Parameter block (8 bytes, little-endian): uint32 rounds (0 to 65536), uint32 scratch_factor (0 to 16). The result has the batch's bytes
// as little-endian uint32 words. The last word is padded with zeros. Each word passes `rounds` times through w = rotl32(w * 1664525 +
// 1013904223, 13). Row boundaries don't matter. Scratch has scratch_factor times the batch's bytes, rounded up to 256. If scratch_factor is
// above 0, a separate kernel moves the words through the scratch and also writes its last byte.
#include <string.h>

#include <new>

#include "mix_kernels.cuh"
#include "runtime/operator.hpp"

namespace millrace {

namespace {

struct Mix {
    int32_t ordinal;
    uint32_t multiprocessors;
    uint32_t rounds, scratch_factor;
};

int32_t mix_load(millrace_error *error) { return load_kernel(mix_bytes, "loading mix_bytes", error); }

int32_t parse(const void *params, size_t bytes, Mix *instance, millrace_error *error) {
    if (bytes != 8) {
        return fail(error, MILLRACE_INVALID, 0,
                    "mix: a parameter block of %zu bytes: it takes 8 (uint32 rounds, uint32 scratch_factor)", bytes);
    }
    memcpy(&instance->rounds, params, 4);
    memcpy(&instance->scratch_factor, static_cast<const char *>(params) + 4, 4);
    if (instance->rounds > kMostMixRounds) {
        return fail(error, MILLRACE_INVALID, 0, "mix: rounds=%u: give 0 to %u", instance->rounds, kMostMixRounds);
    }
    if (instance->scratch_factor > kMostMixScratchFactor) {
        return fail(error, MILLRACE_INVALID, 0, "mix: scratch_factor=%u: give 0 to %u", instance->scratch_factor,
                    kMostMixScratchFactor);
    }
    return MILLRACE_OK;
}

int32_t make_instance(Mix *instance, millrace_error *error) {
    if (int32_t s = check(error, cudaSetDevice(instance->ordinal), "cudaSetDevice")) return s;
    if (int32_t s = mix_load(error)) return s;
    return multiprocessors(instance->ordinal, &instance->multiprocessors, error);
}

int32_t mix_create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out,
                   millrace_error *error) {
    Mix *instance = new (std::nothrow) Mix{ordinal, 0, 0, 0};
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for mix");
    int32_t status = parse(params, bytes, instance, error);
    if (status == MILLRACE_OK) status = make_instance(instance, error);
    if (status != MILLRACE_OK) {
        delete instance;
        return status;
    }
    *out = instance;
    return MILLRACE_OK;
}

int32_t mix_destroy(void *self, millrace_error *) {
    delete static_cast<Mix *>(self); // an instance has no resources on the device
    return MILLRACE_OK;
}

int32_t mix_needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    if (int32_t s = check_shape(shape, error)) return s;
    needs->scratch = mix_scratch_bytes(shape->bytes, static_cast<const Mix *>(self)->scratch_factor);
    needs->result = mix_result_bytes(shape->bytes);
    return MILLRACE_OK;
}

int32_t mix_launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Mix *instance = static_cast<const Mix *>(self);
    if (int32_t s = check_shape(args, error)) return s;
    if (args->bytes == 0) return MILLRACE_OK;
    cudaStream_t stream = static_cast<cudaStream_t>(cuda_stream);
    uint32_t bytes = static_cast<uint32_t>(args->bytes), blocks = mix_blocks(bytes, instance->multiprocessors);
    const uint8_t *batch = reinterpret_cast<const uint8_t *>(args->batch);
    uint8_t *scratch = reinterpret_cast<uint8_t *>(args->scratch), *result = reinterpret_cast<uint8_t *>(args->result);
    if (instance->scratch_factor == 0) {
        mix_bytes<<<blocks, kMixThreads, 0, stream>>>(batch, bytes, instance->rounds, result, nullptr);
        return check_launch(error, "mix_bytes");
    }
    uint64_t room = mix_scratch_bytes(bytes, instance->scratch_factor), words = mix_result_bytes(bytes);
    uint8_t *last = room > words ? scratch + room - 1 : nullptr; // otherwise the last word contains that byte
    mix_bytes<<<blocks, kMixThreads, 0, stream>>>(batch, bytes, instance->rounds, scratch, last);
    if (int32_t s = check_launch(error, "mix_bytes into scratch")) return s;
    mix_bytes<<<blocks, kMixThreads, 0, stream>>>(scratch, static_cast<uint32_t>(words), 0, result, nullptr);
    return check_launch(error, "mix_bytes out of scratch");
}

} // namespace

extern const OperatorEntry kMix = {make_operator("mix", mix_create, mix_destroy, mix_needs, mix_launch), mix_load};

} // namespace millrace
