// An operator with host code for the fake library, whose device memory is host memory. It sums the low
// and the high halves of a record's bytes. Macros select wrong behavior.
#include <millrace/library.cuh>

#include <string.h>

#include <new>

MILLRACE_OPERATOR(halves, 3)
MILLRACE_PARAM(uint32_t, most, 9, 1, 1000)
MILLRACE_RESULT(uint32_t, low)
MILLRACE_RESULT(uint16_t, high)
#ifndef NO_REASONS
MILLRACE_REASON(empty, "the record is empty")
MILLRACE_REASON(long_one, "the record is too long")
#endif
#ifdef STRINGS
MILLRACE_RESULT_BYTES(copy, 2, 1)
#endif

namespace {

int32_t fail(millrace_error *error, int32_t status, const char *message) {
    strcpy(error->message, message);
    return status;
}

int32_t create(const millrace_operator *self, int32_t ordinal, const void *params, size_t bytes, void **out, millrace_error *error) {
    uint32_t most;
    memcpy(&most, params, sizeof most);
    if (most == 666) return fail(error, MILLRACE_OUT_OF_MEMORY, "no room for 666");
    if (most == 667) return MILLRACE_NOT_READY; // without a message
    if (most == 669) return error->code = 209, fail(error, MILLRACE_UNAVAILABLE, "no code for this GPU");
    *out = strcmp(self->name, "halves") == 0 && ordinal == 0 && bytes == 4 ? new (std::nothrow) uint32_t(most) : nullptr;
    return *out != nullptr ? MILLRACE_OK : MILLRACE_INVALID;
}

int32_t destroy(void *instance, millrace_error *error) {
    uint32_t most = *static_cast<uint32_t *>(instance);
    delete static_cast<uint32_t *>(instance);
    return most == 668 ? fail(error, MILLRACE_INVALID, "not destroyed") : MILLRACE_OK;
}

int32_t needs(const void *instance, const millrace_shape *shape, millrace_needs *needs, millrace_error *error) {
    uint32_t most = *static_cast<const uint32_t *>(instance);
    needs->scratch = shape->rows * sizeof(uint32_t);
    if (most == 100) needs->result += 1;
    if (most == 101) needs->scratch = ~0ull;
    if (most == 105 && shape->rows > 1) needs->result--;
    if (most == 102) return fail(error, MILLRACE_INVALID, "no needs");
    return MILLRACE_OK;
}

int32_t launch(const void *instance, void *, const millrace_launch *args, millrace_error *error) {
    uint32_t most = *static_cast<const uint32_t *>(instance);
    if (most == 103) return fail(error, MILLRACE_LAUNCH, "no launch");
    if (args->rows == 0) return fail(error, MILLRACE_LOST, "launched without rows");
    const uint8_t *batch = reinterpret_cast<const uint8_t *>(args->batch);
    const uint32_t *offsets = reinterpret_cast<const uint32_t *>(args->offsets);
    uint8_t *result = reinterpret_cast<uint8_t *>(args->result), *status = reinterpret_cast<uint8_t *>(args->status);
#ifdef STRINGS
    const uint32_t stride = 12;
#else
    const uint32_t stride = 8;
#endif
    for (uint64_t row = 0; row < args->rows; row++) {
        uint32_t low = 0, start = offsets[row], size = offsets[row + 1] - start;
        uint16_t high = 0;
        for (uint32_t i = 0; i < size; i++) low += batch[start + i] % 16, high = static_cast<uint16_t>(high + batch[start + i] / 16);
        memset(result + row * stride, 0, stride);
        if (status != nullptr) status[row] = size == 0 ? 1 : size > most ? 2 : 0;
        if (status != nullptr && status[row] != 0) continue;
        memcpy(result + row * stride, &low, sizeof low);
        memcpy(result + row * stride + 4, &high, sizeof high);
#ifdef STRINGS
        memcpy(result + row * stride + 8, &size, sizeof size);
        memcpy(reinterpret_cast<uint8_t *>(args->strings) + 2 * row + start, batch + start, size);
#endif
    }
    if (most == 104 && status != nullptr) status[0] = 99;
    return MILLRACE_OK;
}

} // namespace

#ifndef UNLIKE
MILLRACE_HOST_CODE(create, destroy, needs, launch)
#else // parts of what the macro defines, changed
#define VISIBLE __attribute__((visibility("default")))
enum : int { millrace_last = MILLRACE_COUNT };
namespace {
constexpr auto description = [] {
    auto all = millrace::describe_host_code<MILLRACE_DECLARED(millrace_last)>("halves", 3);
    UNLIKE_DESCRIPTION;
    return all;
}();
}
extern "C" {
extern VISIBLE const decltype(description) millrace_operator_description;
const decltype(description) millrace_operator_description = description;
static const auto other = description;
static const millrace_operator entry = [] {
    millrace_operator op = {sizeof op, 3, "halves", &millrace_operator_description, create, destroy, needs, launch};
    (void)other;
    UNLIKE_OPERATOR;
    return op;
}();
extern VISIBLE millrace_library millrace_operator_library;
millrace_library millrace_operator_library = [] {
    millrace_library library = {sizeof library, MILLRACE_ABI_VERSION, MILLRACE_ABI_LEAST, 0, &entry};
    UNLIKE_LIBRARY;
    return library;
}();
}
#endif
