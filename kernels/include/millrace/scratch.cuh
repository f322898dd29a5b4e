// Scratch memory: arrays that the passes of an operator fill, and that its record code reads.
#pragma once

#include "millrace/declare.cuh"

namespace millrace {

// ---- atomic changes ----

#ifdef MILLRACE_GPU

// CUDA has no atomic functions for unsigned long, and no atomic addition for signed long long.
template <class T, uint32_t kBytes = sizeof(T), bool kSigned = (static_cast<T>(-1) < static_cast<T>(0))>
struct AtomicWord;
template <class T> struct AtomicWord<T, 4, false> { using Sum = unsigned int; using Order = unsigned int; };
template <class T> struct AtomicWord<T, 4, true> { using Sum = unsigned int; using Order = int; };
template <class T> struct AtomicWord<T, 8, false> { using Sum = unsigned long long; using Order = unsigned long long; };
template <class T> struct AtomicWord<T, 8, true> { using Sum = unsigned long long; using Order = long long; };

struct Atomic {
    template <class T>
    static MILLRACE_DEVICE T add(T *at, T value) {
        using Word = typename AtomicWord<T>::Sum;
        return static_cast<T>(atomicAdd(reinterpret_cast<Word *>(at), static_cast<Word>(value)));
    }
    template <class T>
    static MILLRACE_DEVICE T min(T *at, T value) {
        using Word = typename AtomicWord<T>::Order;
        return static_cast<T>(atomicMin(reinterpret_cast<Word *>(at), static_cast<Word>(value)));
    }
    template <class T>
    static MILLRACE_DEVICE T max(T *at, T value) {
        using Word = typename AtomicWord<T>::Order;
        return static_cast<T>(atomicMax(reinterpret_cast<Word *>(at), static_cast<Word>(value)));
    }
    template <class T>
    static MILLRACE_DEVICE T set_bits(T *at, T value) {
        using Word = typename AtomicWord<T>::Sum;
        return static_cast<T>(atomicOr(reinterpret_cast<Word *>(at), static_cast<Word>(value)));
    }
    template <class T>
    static MILLRACE_DEVICE T exchange(T *at, T value) {
        using Word = typename AtomicWord<T>::Sum;
        return static_cast<T>(atomicExch(reinterpret_cast<Word *>(at), static_cast<Word>(value)));
    }
};

#else

// Blocks of a pass run on several cores at once, so the CPU needs atomic changes, too.
struct Atomic {
    template <class T>
    static T add(T *at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
    template <class T>
    static T min(T *at, T value) { return replace(at, value, [=](T old) { return value < old; }); }
    template <class T>
    static T max(T *at, T value) { return replace(at, value, [=](T old) { return old < value; }); }
    template <class T>
    static T set_bits(T *at, T value) { return __atomic_fetch_or(at, value, __ATOMIC_RELAXED); }
    template <class T>
    static T exchange(T *at, T value) { return __atomic_exchange_n(at, value, __ATOMIC_RELAXED); }

private:
    template <class T, class Better>
    static T replace(T *at, T value, Better better) {
        T old = __atomic_load_n(at, __ATOMIC_RELAXED);
        while (better(old) && !__atomic_compare_exchange_n(at, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
        return old;
    }
};

#endif

// ---- arrays ----

// An array in scratch memory. Its elements are zero before the first pass. An access outside of the array reads zero or
// writes nothing. It fails the record whose code makes the access, or all records of the batch if a pass makes it.
//
// All blocks and lanes of a pass share the array. If several of them may change one element, use the atomic functions, and let
// the next pass read the element. The atomic functions return the previous value, which depends on the order of blocks and lanes.
// Results must not depend on that value.
template <class T>
class ScratchArray {
public:
    MILLRACE_DEVICE ScratchArray(uint64_t at, uint64_t size)
        : elements_(reinterpret_cast<T *>(at)), size_(size), sink_(), out_of_bounds_(false) {}

    MILLRACE_DEVICE uint64_t size() const { return size_; }

    MILLRACE_DEVICE T &operator[](uint64_t i) {
        if (outside(i)) {
            sink_ = T();
            return sink_;
        }
        return elements_[i];
    }

    // These functions change element i atomically, and return its previous value. T has 32 or 64 bits.
    MILLRACE_DEVICE T add(uint64_t i, T value) { return outside(i) ? T() : Atomic::add(word(i), value); }
    MILLRACE_DEVICE T min(uint64_t i, T value) { return outside(i) ? T() : Atomic::min(word(i), value); }
    MILLRACE_DEVICE T max(uint64_t i, T value) { return outside(i) ? T() : Atomic::max(word(i), value); }
    MILLRACE_DEVICE T set_bits(uint64_t i, T bits) { return outside(i) ? T() : Atomic::set_bits(word(i), bits); }
    MILLRACE_DEVICE T exchange(uint64_t i, T value) { return outside(i) ? T() : Atomic::exchange(word(i), value); }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_; }

private:
    MILLRACE_DEVICE bool outside(uint64_t i) {
        if (!kChecked || i < size_) return false;
        return out_of_bounds_ = true;
    }

    MILLRACE_DEVICE T *word(uint64_t i) {
        static_assert((sizeof(T) == 4 || sizeof(T) == 8) && static_cast<T>(1) / 2 == 0,
                      "atomic functions of scratch memory need an integer of 32 or 64 bits");
        return elements_ + i;
    }

    T *elements_;
    uint64_t size_;
    T sink_; // target of writes outside the array
    bool out_of_bounds_;
};

// The position in the scratch memory of a batch. The arrays are allocated in order of declaration.
struct ScratchPlace {
    static constexpr uint64_t kAlign = 128; // alignment of each array; the first 128 bytes hold the fault word

    uint64_t start, at;
    uint32_t rows, bytes;

    MILLRACE_DEVICE explicit ScratchPlace(const millrace_batch &batch)
        : start(batch.scratch), at(kAlign), rows(batch.rows), bytes(batch.bytes) {}

    template <class T>
    MILLRACE_DEVICE ScratchArray<T> take(uint64_t constant, uint64_t per_record, uint64_t per_byte) {
        uint64_t size = constant + per_record * rows + per_byte * bytes, from = start + at;
        at += (size * sizeof(T) + kAlign - 1) / kAlign * kAlign;
        return ScratchArray<T>(from, size);
    }
};

template <int N>
struct Scratch : Scratch<N - 1> {
    using InternalBefore_ = Scratch<N - 1>;
    MILLRACE_DEVICE explicit Scratch(ScratchPlace &place) : InternalBefore_(place) {}
};

struct NoScratch {
    static constexpr uint32_t internal_count_ = 0;
    static constexpr uint64_t internal_bytes_ = ScratchPlace::kAlign, internal_per_row_ = 0, internal_per_byte_ = 0; // maximum, with alignment
    MILLRACE_DEVICE explicit NoScratch(ScratchPlace &) {}
    MILLRACE_DEVICE bool internal_out_of_bounds_() const { return false; }
};

constexpr uint64_t kMostScratch = 1 << 30, kMostScratchPerRow = 1 << 20, kMostScratchPerByte = 1 << 10;

} // namespace millrace

#define MILLRACE_SCRATCH(type, name, constant, per_record, per_byte) \
    MILLRACE_SCRATCH_AT(millrace_scratch_##name, type, name, constant, per_record, per_byte)
#define MILLRACE_SCRATCH_AT(N, type, name, constant, per_record, per_byte)                                         \
    MILLRACE_BEGIN(N)                                                                                               \
    template <>                                                                                                     \
    struct millrace::Scratch<N> : millrace::Scratch<N - 1> {                                                        \
        using InternalBefore_ = millrace::Scratch<N - 1>;                                                           \
        static_assert(millrace::good_name(#name), "scratch " #name ": a name has lower-case letters, digits and "   \
                                                  "underscores, and at most 31 characters");                        \
        static_assert((constant) >= 0 && (per_record) >= 0 && (per_byte) >= 0 && (constant) + (per_record) + (per_byte) > 0, \
                      "scratch " #name ": give its number of elements, per batch, per record and per byte");        \
        static_assert(millrace::Passes<N>::internal_count_ == 0, "scratch " #name ": declare it before the first MILLRACE_PASS"); \
        static constexpr uint32_t internal_count_ = InternalBefore_::internal_count_ + 1;                           \
        static constexpr uint64_t internal_bytes_ = InternalBefore_::internal_bytes_ + sizeof(type) * (constant) + millrace::ScratchPlace::kAlign - 1, \
                                  internal_per_row_ = InternalBefore_::internal_per_row_ + sizeof(type) * (per_record), \
                                  internal_per_byte_ = InternalBefore_::internal_per_byte_ + sizeof(type) * (per_byte); \
        static_assert(internal_bytes_ <= millrace::kMostScratch && internal_per_row_ <= millrace::kMostScratchPerRow && \
                          internal_per_byte_ <= millrace::kMostScratchPerByte,                                      \
                      "scratch " #name ": all scratch has at most 1 GiB, 1 MiB per record and 1 KiB per byte");     \
        millrace::ScratchArray<type> name;                                                                          \
        MILLRACE_DEVICE explicit Scratch(millrace::ScratchPlace &place)                                             \
            : InternalBefore_(place), name(place.take<type>(constant, per_record, per_byte)) {}                     \
        MILLRACE_DEVICE bool internal_out_of_bounds_() const {                                                      \
            return InternalBefore_::internal_out_of_bounds_() || name.out_of_bounds_occurred();                     \
        }                                                                                                           \
    };                                                                                                              \
    MILLRACE_END(N)
