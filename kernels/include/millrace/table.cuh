// Tables: parameters whose value is the contents of a file.
#pragma once

#include "millrace/declare.cuh"

namespace millrace {

// The contents of a file. A read outside of the table returns 0. Such a read fails the record whose code makes it, or the whole
// batch if a pass makes it.
class Table {
public:
    MILLRACE_DEVICE Table(const uint8_t *data, uint32_t size) : data_(data), size_(size), out_of_bounds_(false) {}

    MILLRACE_DEVICE uint32_t size() const { return size_; }
    MILLRACE_DEVICE bool empty() const { return size_ == 0; }

    MILLRACE_DEVICE uint8_t operator[](uint32_t i) const {
        if (kChecked && i >= size_) {
            out_of_bounds_ = true;
            return 0;
        }
        return load_any(data_ + i);
    }

    // Returns the little-endian number at position `at`, which need not be aligned.
    template <class T>
    MILLRACE_DEVICE T load(uint32_t at) const {
        if (kChecked && (size_ < sizeof(T) || at > size_ - sizeof(T))) {
            out_of_bounds_ = true;
            return T();
        }
        return load_any(reinterpret_cast<const T *>(data_ + at));
    }

    // Returns the address of the first byte, for code that checks its accesses itself. On a GPU, the address is a multiple of 16.
    MILLRACE_DEVICE const uint8_t *data() const { return data_; }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_; }
    MILLRACE_DEVICE void forget_out_of_bounds() const { out_of_bounds_ = false; }

private:
    template <class T>
    static MILLRACE_DEVICE T load_any(const T *from) {
#ifdef __CUDA_ARCH__
        if (reinterpret_cast<uint64_t>(from) % sizeof(T) == 0) return __ldg(from);
        uint8_t bytes[sizeof(T)];
        for (uint32_t i = 0; i < sizeof(T); i++) bytes[i] = __ldg(reinterpret_cast<const uint8_t *>(from) + i);
        return load_unaligned<T>(bytes);
#else
        return load_unaligned<T>(from);
#endif
    }

    const uint8_t *data_;
    uint32_t size_;
    mutable bool out_of_bounds_;
};

// Returns the table whose position and size are at `place` in the parameter block.
MILLRACE_DEVICE Table open_table(const uint8_t *place, uint64_t tables) {
    return Table(reinterpret_cast<const uint8_t *>(tables + load_unaligned<uint32_t>(place)), load_unaligned<uint32_t>(place + 4));
}

MILLRACE_CONSTEXPR millrace_parameter describe_table(const char *name, uint32_t at, uint32_t most) {
    millrace_parameter p{};
    copy_text(p.name, name);
    p.type = MILLRACE_FILE, p.at = at, p.least = 1, p.most = most;
    return p;
}

} // namespace millrace

#define MILLRACE_TABLE(name, most) MILLRACE_TABLE_AT(millrace_param_##name, name, most)
#define MILLRACE_TABLE_AT(N, name, most)                                                                           \
    MILLRACE_BEGIN(N)                                                                                               \
    template <>                                                                                                     \
    struct millrace::Parameters<N> : millrace::Parameters<N - 1> {                                                  \
        using InternalBefore_ = millrace::Parameters<N - 1>;                                                        \
        static_assert(millrace::good_name(#name), "table " #name ": a name has lower-case letters, digits and "     \
                                                  "underscores, and at most 31 characters");                        \
        static_assert(millrace::find_parameter<InternalBefore_>(#name) == 0, "parameter " #name " is declared twice"); \
        static_assert((most) >= 1, "table " #name ": its size must be at least 1");                                 \
        static constexpr uint64_t internal_table_bytes_ = InternalBefore_::internal_table_bytes_ + (most);          \
        static_assert((most) <= MILLRACE_MOST_TABLE_BYTES && internal_table_bytes_ <= MILLRACE_MOST_TABLE_BYTES,    \
                      "table " #name ": the tables of an operator have at most 16 MiB together");                   \
        static constexpr uint32_t internal_count_ = InternalBefore_::internal_count_ + 1, internal_at_ = millrace::align(InternalBefore_::internal_bytes_, 8), \
                                  internal_bytes_ = internal_at_ + 8;                                               \
        millrace::Table name;                                                                                       \
        MILLRACE_DEVICE Parameters(const uint8_t *block, uint64_t tables)                                           \
            : InternalBefore_(block, tables), name(millrace::open_table(block + internal_at_, tables)) {}           \
        static MILLRACE_CONSTEXPR void internal_describe_(millrace_parameter *all) {                                \
            InternalBefore_::internal_describe_(all);                                                               \
            all[internal_count_ - 1] = millrace::describe_table(#name, internal_at_, most);                         \
        }                                                                                                           \
        MILLRACE_DEVICE bool internal_out_of_bounds_() const {                                                      \
            return InternalBefore_::internal_out_of_bounds_() || name.out_of_bounds_occurred();                     \
        }                                                                                                           \
        MILLRACE_DEVICE void internal_forget_out_of_bounds_() const {                                               \
            InternalBefore_::internal_forget_out_of_bounds_();                                                      \
            name.forget_out_of_bounds();                                                                            \
        }                                                                                                           \
    };                                                                                                              \
    MILLRACE_END(N)
