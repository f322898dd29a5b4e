// The declarations of the built-in operators. They use the functions that the macros of millrace/declare.cuh use, because the
// macros declare only one operator per library. internal/operator/compiled has the same declarations for the worker, which
// rejects a library with other declarations.
#include "builtin.hpp"

#include <stddef.h>

#include "../math/neardup_key.cuh"
#include "../math/permutation.cuh"
#include "../math/shingle.cuh"
#include "millrace/declare.cuh"

namespace millrace {

namespace {

constexpr Declared named(const char *name, uint32_t version) {
    Declared all{};
    millrace_description &head = all.head;
    copy_text(head.magic, MILLRACE_DESCRIPTION_MAGIC);
    copy_text(head.name, name);
    head.size = sizeof head, head.bytes = sizeof all, head.contract = 1, head.batch_size = sizeof(millrace_batch);
    head.version = version, head.form = MILLRACE_LIBRARY;
    head.parameter_size = sizeof(millrace_parameter), head.parameters_at = offsetof(Declared, parameters);
    head.field_size = sizeof(millrace_field), head.fields_at = offsetof(Declared, fields);
    head.reason_size = sizeof(millrace_reason), head.reasons_at = offsetof(Declared, reasons);
    head.pass_size = sizeof(millrace_pass), head.passes_at = sizeof all;
    return all;
}

template <class T>
constexpr void add_parameter(Declared *all, const char *name, T preset, T least, T most, uint32_t given) {
    uint32_t at = align(all->head.parameter_bytes, sizeof(T));
    all->parameters[all->head.parameters++] = describe_parameter<T>(name, at, preset, least, most, given);
    all->head.parameter_bytes = at + sizeof(T);
}

template <class Field>
constexpr void add_field(Declared *all, const char *name, uint32_t given) {
    all->fields[all->head.fields++] = describe_field<Field>(name, given);
}

constexpr Declared crc32c() {
    Declared all = named("crc32c", 1);
    add_field<NumberField<uint32_t>>(&all, "checksum", hex | bare);
    return all;
}

// The size of the signature is the second parameter, `hashes`.
struct Hashes {
    static constexpr uint32_t kCount = 0, kParameter = 2;
};

constexpr Declared minhash() {
    Declared all = named("minhash", 2);
    add_parameter<uint32_t>(&all, "k", 24, 1, kMostShingleCharacters, shown);
    add_parameter<uint32_t>(&all, "hashes", 128, 1, kMostHashes, 0);
    add_parameter<uint32_t>(&all, "seed", 42, 0, UINT32_MAX, shown);
    add_field<ArrayField<uint32_t, Hashes>>(&all, "signature", bare_column);
    return all;
}

// A counter that a result has if the first parameter is true.
struct OptionalCounter {
    static constexpr void describe(millrace_field *f) { f->type = MILLRACE_UINT32, f->count_parameter = 1; }
};

constexpr Declared quality() {
    Declared all = named("quality", 1);
    add_parameter<bool>(&all, "ngrams", false, false, true, 0);
    for (uint32_t f = 0; f < kQualityFields; f++) add_field<NumberField<uint32_t>>(&all, kQualityNames[f], 0);
    for (uint32_t f = kQualityFields; f < kQualityAllFields; f++) add_field<OptionalCounter>(&all, kQualityNames[f], 0);
    copy_text(all.reasons[all.head.reasons++].text, "invalid UTF-8");
    return all;
}

// The number of keys is the first parameter, `bands`.
struct Bands {
    static constexpr uint32_t kCount = 0, kParameter = 1;
};

constexpr Declared neardup() {
    Declared all = named("neardup", 1);
    add_parameter<uint32_t>(&all, "bands", 20, 1, kMostBands, 0);
    add_parameter<uint32_t>(&all, "rows", 13, 1, kMostHashes, 0);
    add_parameter<uint32_t>(&all, "k", 24, 1, kMostShingleCharacters, 0);
    add_parameter<uint32_t>(&all, "seed", 42, 0, UINT32_MAX, 0);
    add_field<ArrayField<uint64_t, Bands>>(&all, "keys", bare_column);
    return all;
}

} // namespace

constexpr Declared kCrc32cDeclared = crc32c();
constexpr Declared kMinhashDeclared = minhash();
constexpr Declared kQualityDeclared = quality();
constexpr Declared kNeardupDeclared = neardup();

} // namespace millrace
