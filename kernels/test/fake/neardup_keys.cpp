// neardup of the fake library: the keys of near-duplicates for every row of a batch. The host computes the keys with the arithmetic of
// the kernels, so the verdicts of the index (neardup.cpp) are real.
#include <string.h>

#include <new>
#include <vector>

#include "../../math/murmur3.cuh"
#include "../../math/neardup_key.cuh"
#include "../../math/permutation.cuh"
#include "../../math/shingle.cuh"
#include "../../runtime/builtin.hpp"
#include "../../runtime/description.hpp"
#include "../../runtime/operator.hpp"

namespace millrace {

namespace {

struct NeardupKeys {
    struct {
        uint32_t bands, rows, k, seed;
    } block; // the parameter block
    std::vector<Permutation> permutations;
};

// Computes the signature of a row, which has one value for each permutation. The signature of an empty row is zeros.
void sign(const NeardupKeys &keys, const uint8_t *row, uint32_t bytes, std::vector<uint32_t> &signature) {
    signature.assign(keys.permutations.size(), bytes == 0 ? 0 : 0xffffffffu);
    std::vector<uint32_t> starts;
    for (uint32_t i = 0; i < bytes; i++) {
        if (i == 0 || starts_character(row[i])) starts.push_back(i);
    }
    auto start = [&](uint32_t character) { return character < starts.size() ? starts[character] : kNoCharacter; };
    for (uint32_t character = 0; character < starts.size(); character++) {
        uint32_t first = starts[character], end = shingle_end(start, character, keys.block.k, bytes, character == 0);
        if (end == kNoCharacter) return;
        uint32_t hash = shingle_hash(murmur3(keys.permutations[0].a, end - first, [&](uint32_t i) {
            uint32_t word = 0, at = first + 4 * i;
            memcpy(&word, row + at, min2(sizeof word, bytes - at));
            return word;
        }));
        for (size_t i = 0; i < signature.size(); i++) signature[i] = min2(signature[i], permute(keys.permutations[i], hash));
    }
}

void neardup_rows(const NeardupKeys *keys, const uint8_t *batch, const uint32_t *offsets, uint32_t rows, uint64_t *result) {
    uint32_t bands = keys->block.bands, band_rows = keys->block.rows;
    std::vector<uint32_t> signature;
    for (uint32_t row = 0; row < rows; row++) {
        sign(*keys, batch + offsets[row], offsets[row + 1] - offsets[row], signature);
        for (uint32_t band = 0; band < bands; band++) {
            *result++ = neardup_key(band, neardup_band_bits(bands), &signature[band * band_rows], band_rows);
        }
    }
}

int32_t load(millrace_error *error) { return load_kernel(neardup_rows, "loading neardup_rows", error); }

int32_t create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out, millrace_error *error) {
    ResultSize size;
    if (int32_t s = bind_block(&kNeardupDeclared.head, params, bytes, &size, error)) return s;
    if (int32_t s = check(error, cudaSetDevice(ordinal), "cudaSetDevice")) return s;
    if (int32_t s = load(error)) return s;
    NeardupKeys *instance = new (std::nothrow) NeardupKeys();
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory");
    memcpy(&instance->block, params, sizeof instance->block);
    Permutations permutations(instance->block.seed);
    for (uint32_t i = 0; i < instance->block.bands * instance->block.rows; i++) instance->permutations.push_back(permutations.next());
    *out = instance;
    return MILLRACE_OK;
}

int32_t destroy(void *self, millrace_error *) {
    delete static_cast<NeardupKeys *>(self);
    return MILLRACE_OK;
}

int32_t needs(const void *self, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    if (int32_t s = check_shape(shape, error)) return s;
    needs->scratch = shape->bytes / 1024;
    needs->result = shape->rows * static_cast<const NeardupKeys *>(self)->block.bands * sizeof(uint64_t);
    return MILLRACE_OK;
}

int32_t launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const NeardupKeys *keys = static_cast<const NeardupKeys *>(self);
    if (int32_t s = check_shape(args, error)) return s;
    const uint8_t *batch = reinterpret_cast<const uint8_t *>(args->batch);
    const uint32_t *offsets = reinterpret_cast<const uint32_t *>(args->offsets);
    uint64_t *result = reinterpret_cast<uint64_t *>(args->result);
    uint32_t rows = static_cast<uint32_t>(args->rows);
    void *arguments[] = {&keys, &batch, &offsets, &rows, &result};
    cudaError_t launched = cudaLaunchKernel(reinterpret_cast<const void *>(neardup_rows), dim3(1), dim3(1), arguments, 0,
                                            static_cast<cudaStream_t>(cuda_stream));
    int32_t status = check(error, launched, "neardup_rows");
    if (status == MILLRACE_INVALID) status = error->status = MILLRACE_LAUNCH; // like check_launch
    return status;
}

} // namespace

extern const OperatorEntry kNeardupKeys = {make_operator("neardup", create, destroy, needs, launch, &kNeardupDeclared), load};

} // namespace millrace
