// The declarations of an operator: its name, parameters, result fields and reasons.
//
// Each declaration has a number. If declaration N is a parameter, Parameters<N> is the struct Parameters<N - 1> with an
// additional member. For any other N, Parameters<N> is Parameters<N - 1>. Result and Reasons work in the same way. The
// last type of each kind belongs to the operator, so all its members are known at compile time.
//
// Members of these structs that don't belong to the operator have names like internal_count_. Declared names can't end with an
// underscore. Internal names differ so much from them that a compiler doesn't suggest an internal name for a misspelt name.
#pragma once

#include "millrace/description.h"
#include "millrace/platform.cuh"
#include "millrace/record.cuh"

namespace millrace {

// The properties of parameters and fields.
constexpr uint32_t shown = MILLRACE_SHOWN;             // parameter: the JSON result contains the value
constexpr uint32_t hex = MILLRACE_HEX;                 // field: hexadecimal digits in JSON
constexpr uint32_t bare_column = MILLRACE_BARE_COLUMN; // the only field: its values are the Arrow column, without a struct
constexpr uint32_t bare = MILLRACE_BARE_JSON | MILLRACE_BARE_COLUMN; // bare_column, and the field's value is the JSON value, without an object

MILLRACE_CONSTEXPR uint32_t flags() { return 0; }
MILLRACE_CONSTEXPR uint32_t flags(uint32_t given) { return given; }

// ---- types ----

// The type's number in a description, or 0 if parameters and fields can't have the type.
template <class T>
struct TypeOf { static constexpr uint32_t value = 0; };
template <> struct TypeOf<uint8_t> { static constexpr uint32_t value = MILLRACE_UINT8; };
template <> struct TypeOf<uint16_t> { static constexpr uint32_t value = MILLRACE_UINT16; };
template <> struct TypeOf<uint32_t> { static constexpr uint32_t value = MILLRACE_UINT32; };
template <> struct TypeOf<unsigned long> { static constexpr uint32_t value = MILLRACE_UINT64; };
template <> struct TypeOf<unsigned long long> { static constexpr uint32_t value = MILLRACE_UINT64; };
template <> struct TypeOf<int8_t> { static constexpr uint32_t value = MILLRACE_INT8; };
template <> struct TypeOf<int16_t> { static constexpr uint32_t value = MILLRACE_INT16; };
template <> struct TypeOf<int32_t> { static constexpr uint32_t value = MILLRACE_INT32; };
template <> struct TypeOf<long> { static constexpr uint32_t value = MILLRACE_INT64; };
template <> struct TypeOf<long long> { static constexpr uint32_t value = MILLRACE_INT64; };
template <> struct TypeOf<float> { static constexpr uint32_t value = MILLRACE_FLOAT32; };
template <> struct TypeOf<double> { static constexpr uint32_t value = MILLRACE_FLOAT64; };
template <> struct TypeOf<bool> { static constexpr uint32_t value = MILLRACE_BOOL; }; // parameters only

template <class T>
constexpr bool kIsNumber = TypeOf<T>::value != 0 && TypeOf<T>::value != MILLRACE_BOOL;

// Advice for any other type. The assertions are in the outermost macros, so that the compiler's message shows the assertion.
#define MILLRACE_TYPES "use uint8_t to uint64_t, int8_t to int64_t, float or double"

MILLRACE_CONSTEXPR uint32_t align(uint32_t at, uint32_t size) { return (at + size - 1) / size * size; }

// Returns the 64 bits of a number in a description.
template <class T>
MILLRACE_CONSTEXPR uint64_t bits_of(T value) { return static_cast<uint64_t>(value); } // extends the sign

// Returns the bits of a float64. The function uses only arithmetic, because C++17 has no constant expression that reads the bits.
MILLRACE_CONSTEXPR uint64_t bits_of(double value) {
    if (value == 0) return 0;
    uint64_t sign = value < 0 ? 1ull << 63 : 0;
    double size = value < 0 ? -value : value;
    int exponent = 0;
    for (; size >= 2; exponent++) size /= 2;
    for (; size < 1 && exponent > -1022; exponent--) size *= 2;
    if (size < 1) return sign | static_cast<uint64_t>(size * 4503599627370496.0); // subnormal
    return sign | static_cast<uint64_t>(exponent + 1023) << 52 | static_cast<uint64_t>((size - 1) * 4503599627370496.0);
}
MILLRACE_CONSTEXPR uint64_t bits_of(float value) { return bits_of(static_cast<double>(value)); }

// ---- texts ----

// Returns whether the text consists of lower-case letters, digits and underscores, begins with a letter, doesn't end
// with an underscore, and isn't too long.
MILLRACE_CONSTEXPR bool good_name(const char *text) {
    uint32_t n = 0;
    for (; text[n] != 0; n++) {
        bool letter = text[n] >= 'a' && text[n] <= 'z', digit = text[n] >= '0' && text[n] <= '9';
        if (!letter && (n == 0 || (!digit && text[n] != '_'))) return false;
    }
    return n > 0 && n < MILLRACE_NAME_BYTES && text[n - 1] != '_';
}

// Returns whether the text is one line of printable ASCII characters.
MILLRACE_CONSTEXPR bool good_reason(const char *text) {
    uint32_t n = 0;
    for (; text[n] != 0; n++) {
        if (text[n] < ' ' || text[n] > '~') return false;
    }
    return n > 0 && n < MILLRACE_REASON_BYTES;
}

MILLRACE_CONSTEXPR bool same(const char *a, const char *b) {
    for (; *a != 0 && *a == *b; a++) b++;
    return *a == *b;
}

MILLRACE_CONSTEXPR void copy_text(char *to, const char *from) {
    for (; *from != 0; from++) *to++ = *from;
    *to = 0;
}

// ---- parameters ----

template <int N>
struct Parameters : Parameters<N - 1> {
    using InternalBefore_ = Parameters<N - 1>;
    MILLRACE_DEVICE Parameters(const uint8_t *block, uint64_t tables) : InternalBefore_(block, tables) {}
};

struct NoParameters {
    static constexpr uint32_t internal_count_ = 0, internal_bytes_ = 0;
    static constexpr uint64_t internal_table_bytes_ = 0; // maximum total size of all tables
    MILLRACE_DEVICE NoParameters(const uint8_t *, uint64_t) {}
    static MILLRACE_CONSTEXPR void internal_describe_(millrace_parameter *) {}
    MILLRACE_DEVICE bool internal_out_of_bounds_() const { return false; }
    MILLRACE_DEVICE void internal_forget_out_of_bounds_() const {}
};

template <class T>
MILLRACE_CONSTEXPR millrace_parameter describe_parameter(const char *name, uint32_t at, T preset, T least, T most,
                                                         uint32_t given) {
    millrace_parameter p{};
    copy_text(p.name, name);
    p.type = TypeOf<T>::value, p.flags = given, p.at = at;
    p.preset = bits_of(preset), p.least = bits_of(least), p.most = bits_of(most);
    return p;
}

// Returns the index of the named parameter plus 1, or 0 if no parameter has that name.
template <class P>
MILLRACE_CONSTEXPR uint32_t find_parameter(const char *name) {
    millrace_parameter all[P::internal_count_ + 1]{};
    P::internal_describe_(all);
    for (uint32_t i = 0; i != P::internal_count_; i++) {
        if (same(all[i].name, name)) return i + 1;
    }
    return 0;
}

// A parameter block as an argument of a kernel.
template <uint32_t kBytes>
struct Block {
    alignas(8) uint8_t bytes[kBytes == 0 ? 8 : (kBytes + 7) / 8 * 8];
};

// ---- result fields ----

// The position of the result of one record. The fields are visited in order, each time from the start.
struct Place {
    const millrace_batch &batch;
    uint32_t row;
    uint32_t start, size; // position and size of the record, in bytes
    uint8_t *record;
    uint32_t at;      // end of the fields so far
    uint32_t largest; // size of the largest element so far
    uint64_t strings; // position of the current byte string's slots

    MILLRACE_DEVICE Place(const millrace_batch &of, uint32_t i, uint32_t offset, uint32_t bytes)
        : batch(of), row(i), start(offset), size(bytes),
          record(reinterpret_cast<uint8_t *>(of.result) + static_cast<uint64_t>(i) * of.stride), at(0), largest(1),
          strings(of.strings) {}

    MILLRACE_DEVICE void restart() { at = 0, largest = 1, strings = batch.strings; }

    // Returns the address of `count` elements of `bytes` bytes each.
    MILLRACE_DEVICE uint8_t *take(uint32_t bytes, uint32_t count) {
        uint32_t from = align(at, bytes);
        largest = largest > bytes ? largest : bytes;
        at = from + bytes * count;
        return record + from;
    }

    // Like take, but sets the bytes that alignment skips to zero.
    MILLRACE_DEVICE uint8_t *take_padded(uint32_t bytes, uint32_t count) {
        for (uint32_t i = at; i < align(at, bytes); i++) record[i] = 0;
        return take(bytes, count);
    }

    // Returns the address of the record's slot for a byte string.
    MILLRACE_DEVICE uint8_t *take_slot(uint32_t most, uint32_t per_byte) {
        uint64_t slots = strings;
        strings += static_cast<uint64_t>(most) * batch.rows + static_cast<uint64_t>(per_byte) * batch.bytes;
        return reinterpret_cast<uint8_t *>(slots + static_cast<uint64_t>(most) * row + static_cast<uint64_t>(per_byte) * start);
    }
};

template <int N>
struct Result : Result<N - 1> {
    using InternalBefore_ = Result<N - 1>;
    template <class P>
    MILLRACE_DEVICE Result(Place &place, const P &params) : InternalBefore_(place, params) {}
};

// Marks the types of reasons.
template <class Reason>
struct IsReason {
    static constexpr bool value = false;
};

struct NoResult {
    static constexpr uint32_t internal_count_ = 0;
    static constexpr bool internal_arrays_ = false; // whether a field is an array
    uint32_t internal_code_ = MILLRACE_DONE;

    template <class P>
    MILLRACE_DEVICE NoResult(Place &, const P &) {}

    // Rejects the record for a declared reason. Only this record becomes a dead letter.
    template <class Reason>
    MILLRACE_DEVICE void reject(Reason reason) {
        static_assert(IsReason<Reason>::value, "reject takes a name that MILLRACE_REASON declares");
        internal_code_ = static_cast<uint32_t>(reason);
    }

    // Reports that the operator can't compute the record, although the record is valid.
    MILLRACE_DEVICE void fail() { internal_code_ = MILLRACE_FAILED; }

    static MILLRACE_CONSTEXPR void internal_describe_(millrace_field *) {}
    MILLRACE_DEVICE bool internal_out_of_bounds_() const { return false; }
    template <class P, class Team>
    static MILLRACE_DEVICE void internal_clear_(Place &, const P &, const Team &) {}
    template <class P>
    MILLRACE_DEVICE void internal_store_(Place &, const P &, bool) const {}
};

// Each kind of field defines the type of its member in the result, and the storage of its value. open is called before
// the operator's code, then all lanes call clear, and lane 0 calls store after the code. The value of a record that
// isn't done is zero.

template <class T>
struct NumberField {
    using Member = T;

    static MILLRACE_CONSTEXPR void describe(millrace_field *f) { f->type = TypeOf<T>::value, f->count = 1; }

    template <class P>
    static MILLRACE_DEVICE T open(Place &place, const P &) { return place.take(sizeof(T), 1), T(); }
    static MILLRACE_DEVICE bool out_of_bounds(const T &) { return false; }
    template <class P, class Team>
    static MILLRACE_DEVICE void clear(Place &place, const P &, const Team &) { place.take(sizeof(T), 1); }
    template <class P>
    static MILLRACE_DEVICE void store(Place &place, const P &, const T &value, bool done) {
        *reinterpret_cast<T *>(place.take_padded(sizeof(T), 1)) = done ? value : T();
    }
};

// The size of an array that doesn't depend on the parameters.
template <uint32_t kSize>
struct FixedSize {
    static_assert(kSize > 0, "an array has at least one element");
    static constexpr uint32_t kCount = kSize, kParameter = 0;
    template <class P>
    static MILLRACE_DEVICE uint32_t of(const P &) { return kSize; }
};

template <class T, class Size>
struct ArrayField {
    using Member = Array<T>;

    static MILLRACE_CONSTEXPR void describe(millrace_field *f) {
        f->type = TypeOf<T>::value, f->array = 1, f->count = Size::kCount, f->count_parameter = Size::kParameter;
    }

    template <class P>
    static MILLRACE_DEVICE Array<T> open(Place &place, const P &params) {
        uint32_t count = Size::of(params);
        return Array<T>(place.take(sizeof(T), count), count);
    }
    static MILLRACE_DEVICE bool out_of_bounds(const Array<T> &array) { return array.out_of_bounds_occurred(); }
    template <class P, class Team>
    static MILLRACE_DEVICE void clear(Place &place, const P &params, const Team &team) {
        uint32_t count = Size::of(params);
        T *at = reinterpret_cast<T *>(place.take(sizeof(T), count));
        for (uint32_t i = team.lane(); i < count; i += team.lanes()) at[i] = T();
    }
    template <class P>
    static MILLRACE_DEVICE void store(Place &place, const P &params, const Array<T> &, bool) {
        place.take_padded(sizeof(T), Size::of(params)); // the code has written the elements
    }
};

template <uint32_t kMost, uint32_t kPerByte>
struct BytesField {
    using Member = Bytes;

    static MILLRACE_CONSTEXPR void describe(millrace_field *f) {
        f->type = MILLRACE_BYTES, f->count = 1, f->most_bytes = kMost, f->most_per_byte = kPerByte;
    }

    template <class P>
    static MILLRACE_DEVICE Bytes open(Place &place, const P &) {
        place.take(sizeof(uint32_t), 1);
        uint64_t capacity = kMost + static_cast<uint64_t>(kPerByte) * place.size;
        return Bytes(place.take_slot(kMost, kPerByte), capacity < 0xffffffffu ? static_cast<uint32_t>(capacity) : 0xffffffffu);
    }
    static MILLRACE_DEVICE bool out_of_bounds(const Bytes &bytes) { return bytes.out_of_bounds_occurred(); }
    template <class P, class Team>
    static MILLRACE_DEVICE void clear(Place &place, const P &, const Team &) { place.take(sizeof(uint32_t), 1); }
    template <class P>
    static MILLRACE_DEVICE void store(Place &place, const P &, const Bytes &bytes, bool done) {
        *reinterpret_cast<uint32_t *>(place.take_padded(sizeof(uint32_t), 1)) = done ? bytes.size() : 0;
    }
};

template <class Field>
MILLRACE_CONSTEXPR millrace_field describe_field(const char *name, uint32_t given) {
    millrace_field f{};
    copy_text(f.name, name);
    f.flags = given;
    Field::describe(&f);
    return f;
}

// Returns whether a field has the given name.
template <class R>
MILLRACE_CONSTEXPR bool has_field(const char *name) {
    millrace_field all[R::internal_count_ + 1]{};
    R::internal_describe_(all);
    for (uint32_t i = 0; i != R::internal_count_; i++) {
        if (same(all[i].name, name)) return true;
    }
    return false;
}

// ---- reasons ----

template <int N>
struct Reasons : Reasons<N - 1> {};

struct NoReasons {
    static constexpr uint32_t internal_count_ = 0;
    static MILLRACE_CONSTEXPR void internal_describe_(millrace_reason *) {}
};

// ---- scratch memory and passes (passes.cuh) ----

template <int N>
struct Scratch;
template <int N>
struct Passes;
struct NoScratch;
struct NoPasses;

// ---- the operator ----

// These types have no definition. A declaration before MILLRACE_OPERATOR needs one of these types, so the declaration doesn't
// compile.
template <> struct Parameters<0>;
template <> struct Result<0>;
template <> struct Reasons<0>;
template <> struct Scratch<0>;
template <> struct Passes<0>;

// Overloads count declarations, because NVRTC has no __COUNTER__. Declaration N declares millrace_count for Rank<N>.
// A call with a higher rank then selects the overload with the highest N so far.
template <int N>
struct Rank : Rank<N - 1> {};
template <>
struct Rank<0> {};

template <int N>
struct Index {
    static constexpr int value = N;
};

constexpr int kMostDeclarations = 128; // nvcc instantiates templates at most 200 deep

} // namespace millrace

__host__ __device__ millrace::Index<0> millrace_count(millrace::Rank<0>);

// The number of declarations so far.
#define MILLRACE_COUNT (decltype(millrace_count(millrace::Rank<millrace::kMostDeclarations>()))::value)

// Defines N as the number of this declaration.
#define MILLRACE_BEGIN(N)                \
    enum : int { N = MILLRACE_COUNT + 1 }; \
    static_assert(N <= millrace::kMostDeclarations, "an operator has at most 128 declarations");
#define MILLRACE_END(N) __host__ __device__ millrace::Index<N> millrace_count(millrace::Rank<N>);

#define MILLRACE_OPERATOR(name, version) MILLRACE_OPERATOR_AT(millrace_declared_operator, name, version)
#define MILLRACE_OPERATOR_AT(N, name, version)                                                                     \
    MILLRACE_BEGIN(N)                                                                                               \
    template <> struct millrace::Parameters<N> : millrace::NoParameters { using NoParameters::NoParameters; };      \
    template <> struct millrace::Result<N> : millrace::NoResult { using NoResult::NoResult; };                      \
    template <> struct millrace::Reasons<N> : millrace::NoReasons {};                                               \
    template <> struct millrace::Scratch<N> : millrace::NoScratch { using NoScratch::NoScratch; };                  \
    template <> struct millrace::Passes<N> : millrace::NoPasses {};                                                 \
    static_assert(millrace::good_name(#name), "operator " #name ": a name has lower-case letters, digits and "      \
                                              "underscores, and at most 31 characters");                            \
    static_assert((version) > 0, "operator " #name ": its version must be at least 1");                             \
    static constexpr char millrace_operator_name[] = #name;                                                         \
    static constexpr uint32_t millrace_operator_version = (version);                                                \
    MILLRACE_END(N)

#define MILLRACE_PARAM(type, name, preset, least, most, ...)                                               \
    static_assert(millrace::kIsNumber<type>, "parameter " #name " can't be a " #type ": " MILLRACE_TYPES); \
    MILLRACE_PARAM_AT(millrace_param_##name, type, name, preset, least, most, millrace::flags(__VA_ARGS__))
#define MILLRACE_PARAM_BOOL(name, preset, ...) \
    MILLRACE_PARAM_AT(millrace_param_##name, bool, name, preset, false, true, millrace::flags(__VA_ARGS__))
#define MILLRACE_PARAM_AT(N, type, name, preset, least, most, given)                                               \
    MILLRACE_BEGIN(N)                                                                                               \
    template <>                                                                                                     \
    struct millrace::Parameters<N> : millrace::Parameters<N - 1> {                                                  \
        using InternalBefore_ = millrace::Parameters<N - 1>;                                                        \
        static_assert(millrace::good_name(#name), "parameter " #name ": a name has lower-case letters, digits and " \
                                                  "underscores, and at most 31 characters");                        \
        static_assert(static_cast<type>(least) <= static_cast<type>(preset) &&                                      \
                          static_cast<type>(preset) <= static_cast<type>(most),                                     \
                      "parameter " #name ": its default must be from the least to the most");                       \
        static_assert(millrace::find_parameter<InternalBefore_>(#name) == 0, "parameter " #name " is declared twice"); \
        static constexpr uint32_t internal_count_ = InternalBefore_::internal_count_ + 1, internal_at_ = millrace::align(InternalBefore_::internal_bytes_, sizeof(type)), \
                                  internal_bytes_ = internal_at_ + sizeof(type);                                    \
        type name;                                                                                                  \
        MILLRACE_DEVICE Parameters(const uint8_t *block, uint64_t tables)                                           \
            : InternalBefore_(block, tables), name(millrace::load_unaligned<type>(block + internal_at_)) {}         \
        static MILLRACE_CONSTEXPR void internal_describe_(millrace_parameter *all) {                                \
            InternalBefore_::internal_describe_(all);                                                               \
            all[internal_count_ - 1] = millrace::describe_parameter<type>(#name, internal_at_, preset, least, most, given); \
        }                                                                                                           \
    };                                                                                                              \
    MILLRACE_END(N)

#define MILLRACE_RESULT(type, name, ...)                                                               \
    static_assert(millrace::kIsNumber<type>, "field " #name " can't be a " #type ": " MILLRACE_TYPES); \
    MILLRACE_FIELD_AT(millrace_field_##name, name, millrace::flags(__VA_ARGS__), false, millrace::NumberField<type>)

#define MILLRACE_RESULT_ARRAY(type, name, size, ...)                                                   \
    static_assert(millrace::kIsNumber<type>, "field " #name " can't be a " #type ": " MILLRACE_TYPES); \
    MILLRACE_FIELD_AT(millrace_field_##name, name, millrace::flags(__VA_ARGS__), true,                 \
                      millrace::ArrayField<type, millrace::FixedSize<(size)>>)

#define MILLRACE_RESULT_ARRAY_BY(type, name, param, ...)                                               \
    static_assert(millrace::kIsNumber<type>, "field " #name " can't be a " #type ": " MILLRACE_TYPES); \
    MILLRACE_RESULT_ARRAY_BY_AT(millrace_field_##name, type, name, param, millrace::flags(__VA_ARGS__))
#define MILLRACE_RESULT_ARRAY_BY_AT(N, type, name, param, given)                                                   \
    struct millrace_size_of_##name {                                                                                \
        using InternalP_ = millrace::Parameters<MILLRACE_COUNT>;                                                    \
        static constexpr uint32_t kCount = 0, kParameter = millrace::find_parameter<InternalP_>(#param);            \
        static_assert(kParameter > 0, "field " #name ": declare the parameter " #param " before it");               \
        static MILLRACE_DEVICE uint32_t of(const InternalP_ &params) { return static_cast<uint32_t>(params.param); } \
    };                                                                                                              \
    MILLRACE_FIELD_AT(N, name, given, true, millrace::ArrayField<type, millrace_size_of_##name>)

#define MILLRACE_RESULT_BYTES(name, most, per_byte, ...)                        \
    MILLRACE_FIELD_AT(millrace_field_##name, name, millrace::flags(__VA_ARGS__), false, \
                      millrace::BytesField<(most), (per_byte)>)

#define MILLRACE_FIELD_AT(N, name, given, is_array, ...) MILLRACE_FIELD_OF(N, name, given, is_array, __VA_ARGS__)
#define MILLRACE_FIELD_OF(N, name, given, is_array, ...)                                                           \
    MILLRACE_BEGIN(N)                                                                                               \
    template <>                                                                                                     \
    struct millrace::Result<N> : millrace::Result<N - 1> {                                                          \
        using InternalBefore_ = millrace::Result<N - 1>;                                                            \
        using InternalField_ = __VA_ARGS__;                                                                         \
        static_assert(millrace::good_name(#name), "field " #name ": a name has lower-case letters, digits and "     \
                                                  "underscores, and at most 31 characters");                        \
        static_assert(!millrace::has_field<InternalBefore_>(#name), "field " #name " is declared twice");           \
        static constexpr uint32_t internal_count_ = InternalBefore_::internal_count_ + 1;                           \
        static constexpr bool internal_arrays_ = InternalBefore_::internal_arrays_ || is_array;                     \
        InternalField_::Member name;                                                                                \
        template <class P>                                                                                          \
        MILLRACE_DEVICE Result(millrace::Place &place, const P &params)                                             \
            : InternalBefore_(place, params), name(InternalField_::open(place, params)) {}                          \
        static MILLRACE_CONSTEXPR void internal_describe_(millrace_field *all) {                                    \
            InternalBefore_::internal_describe_(all);                                                               \
            all[internal_count_ - 1] = millrace::describe_field<InternalField_>(#name, given);                      \
        }                                                                                                           \
        MILLRACE_DEVICE bool internal_out_of_bounds_() const {                                                      \
            return InternalBefore_::internal_out_of_bounds_() || InternalField_::out_of_bounds(name);               \
        }                                                                                                           \
        template <class P, class Team>                                                                              \
        static MILLRACE_DEVICE void internal_clear_(millrace::Place &place, const P &params, const Team &team) {    \
            InternalBefore_::internal_clear_(place, params, team);                                                  \
            InternalField_::clear(place, params, team);                                                             \
        }                                                                                                           \
        template <class P>                                                                                          \
        MILLRACE_DEVICE void internal_store_(millrace::Place &place, const P &params, bool done) const {            \
            InternalBefore_::internal_store_(place, params, done);                                                  \
            InternalField_::store(place, params, name, done);                                                       \
        }                                                                                                           \
    };                                                                                                              \
    MILLRACE_END(N)

#define MILLRACE_REASON(name, text) MILLRACE_REASON_AT(millrace_because_##name, name, text)
#define MILLRACE_REASON_AT(N, name, reason)                                                                        \
    MILLRACE_BEGIN(N)                                                                                               \
    template <>                                                                                                     \
    struct millrace::Reasons<N> : millrace::Reasons<N - 1> {                                                        \
        using InternalBefore_ = millrace::Reasons<N - 1>;                                                           \
        static_assert(millrace::good_reason(reason), "reason " #name ": its text has 1 to 63 printable characters"); \
        static constexpr uint32_t internal_count_ = InternalBefore_::internal_count_ + 1;                           \
        static MILLRACE_CONSTEXPR void internal_describe_(millrace_reason *all) {                                   \
            InternalBefore_::internal_describe_(all);                                                               \
            millrace::copy_text(all[internal_count_ - 1].text, reason);                                             \
        }                                                                                                           \
    };                                                                                                              \
    enum millrace_reason_##name : uint32_t { name = millrace::Reasons<N>::internal_count_ };                        \
    template <> struct millrace::IsReason<millrace_reason_##name> { static constexpr bool value = true; };          \
    MILLRACE_END(N)
