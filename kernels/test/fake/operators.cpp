// The operators of the fake library. crc32c computes the real result with a table in device memory, using the same
// calls as the real operator. neardup is in neardup_keys.cpp. All other operators can only be loaded. There are no gates.
#include <new>

#include "../../runtime/builtin.hpp"
#include "../../runtime/description.hpp"
#include "../../runtime/operator.hpp"

namespace millrace {

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78; // Castagnoli's polynomial, reversed

struct Crc32c {
    int32_t ordinal;
    const uint32_t *table; // on the device
};

void crc32c_rows(const uint32_t *table, const uint8_t *batch, const uint32_t *offsets, uint32_t rows, uint32_t *result) {
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t crc = ~0u;
        for (uint32_t i = offsets[row]; i < offsets[row + 1]; i++) crc = crc >> 8 ^ table[(crc ^ batch[i]) & 255];
        result[row] = ~crc;
    }
}

int32_t load(millrace_error *error) { return load_kernel(crc32c_rows, "loading crc32c_rows", error); }

int32_t make_instance(Crc32c *instance, millrace_error *error) {
    if (int32_t s = check(error, cudaSetDevice(instance->ordinal), "cudaSetDevice")) return s;
    if (int32_t s = load(error)) return s;
    uint32_t count = 0;
    if (int32_t s = multiprocessors(instance->ordinal, &count, error)) return s;
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? kPolynomial : 0);
    }
    void *copy = nullptr;
    if (int32_t s = upload(table, sizeof table, &copy, error)) return s;
    instance->table = static_cast<const uint32_t *>(copy);
    return MILLRACE_OK;
}

int32_t create(const millrace_operator *, int32_t ordinal, const void *params, size_t bytes, void **out,
               millrace_error *error) {
    ResultSize size;
    if (int32_t s = bind_block(&kCrc32cDeclared.head, params, bytes, &size, error)) return s;
    Crc32c *instance = new (std::nothrow) Crc32c{ordinal, nullptr};
    if (instance == nullptr) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory");
    if (int32_t s = make_instance(instance, error)) {
        delete instance;
        return s;
    }
    *out = instance;
    return MILLRACE_OK;
}

int32_t destroy(void *self, millrace_error *error) {
    Crc32c *instance = static_cast<Crc32c *>(self);
    int32_t status = check(error, cudaSetDevice(instance->ordinal), "cudaSetDevice");
    if (status == MILLRACE_OK) status = check(error, cudaFree(const_cast<uint32_t *>(instance->table)), "cudaFree");
    delete instance;
    return status;
}

int32_t needs(const void *, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    if (int32_t s = check_shape(shape, error)) return s;
    needs->scratch = shape->bytes / 1024;
    needs->result = shape->rows * sizeof(uint32_t);
    return MILLRACE_OK;
}

int32_t launch(const void *self, void *cuda_stream, const millrace_launch *args, millrace_error *error) {
    const Crc32c *instance = static_cast<const Crc32c *>(self);
    if (int32_t s = check_shape(args, error)) return s;
    const uint8_t *batch = reinterpret_cast<const uint8_t *>(args->batch);
    const uint32_t *offsets = reinterpret_cast<const uint32_t *>(args->offsets);
    uint32_t *result = reinterpret_cast<uint32_t *>(args->result), rows = static_cast<uint32_t>(args->rows);
    const uint32_t *table = instance->table;
    void *arguments[] = {&table, &batch, &offsets, &rows, &result};
    cudaError_t launched = cudaLaunchKernel(reinterpret_cast<const void *>(crc32c_rows), dim3(1), dim3(1), arguments, 0,
                                            static_cast<cudaStream_t>(cuda_stream));
    int32_t status = check(error, launched, "crc32c_rows");
    if (status == MILLRACE_INVALID) status = error->status = MILLRACE_LAUNCH; // like check_launch
    return status;
}

constexpr OperatorEntry entry(const char *name, const void *description = nullptr) {
    return {make_operator(name, create, destroy, needs, launch, description), load};
}

} // namespace

extern const OperatorEntry kCrc32c = entry("crc32c", &kCrc32cDeclared);
extern const OperatorEntry kMinhash = entry("minhash", &kMinhashDeclared);
extern const OperatorEntry kMinhashPlain = entry("minhash:plain");
extern const OperatorEntry kMinhashSpecialized = entry("minhash:warp-specialized");
extern const OperatorEntry kMinhashCluster = entry("minhash:cluster");
extern const OperatorEntry kQuality = entry("quality", &kQualityDeclared);
extern const OperatorEntry kMix = entry("mix");
extern const OperatorEntry kCrc32cPersistent = entry("crc32c:persistent");
extern const OperatorEntry kMinhashPersistent = entry("minhash:persistent");

int32_t gates_open(Gates *, millrace_error *) { return MILLRACE_OK; }
void gates_close(Gates *) {}
int32_t gate_enqueue(millrace_stream *, uint64_t *, millrace_error *error) {
    return fail(error, MILLRACE_UNAVAILABLE, 0, "the fake library has no gates");
}
void gate_open(millrace_device *, uint64_t) {}

} // namespace millrace
