// What an operator's code reads and writes: a record, and the arrays and byte strings of a result.
#pragma once

#include "millrace/platform.cuh"

namespace millrace {

#ifdef MILLRACE_UNCHECKED
constexpr bool kChecked = false;
#else
constexpr bool kChecked = true;
#endif

// Reads a value at any address.
template <class T>
MILLRACE_DEVICE T load_unaligned(const void *from) {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

// The bytes of one record. Reading outside it returns 0 and fails the record.
class Record {
public:
    MILLRACE_DEVICE Record(const uint8_t *data, uint32_t size) : data_(data), size_(size), out_of_bounds_(false) {}

    MILLRACE_DEVICE uint32_t size() const { return size_; }
    MILLRACE_DEVICE bool empty() const { return size_ == 0; }

    MILLRACE_DEVICE uint8_t operator[](uint32_t i) const {
        if (kChecked && i >= size_) {
            out_of_bounds_ = true;
            return 0;
        }
#ifdef __CUDA_ARCH__
        return __ldg(data_ + i);
#else
        return data_[i];
#endif
    }

    // Returns the little-endian number at that position, which need not be aligned.
    template <class T>
    MILLRACE_DEVICE T load(uint32_t at) const {
        if (kChecked && (size_ < sizeof(T) || at > size_ - sizeof(T))) {
            out_of_bounds_ = true;
            return T();
        }
#ifdef __CUDA_ARCH__
        const uint8_t *from = data_ + at;
        if (reinterpret_cast<uint64_t>(from) % sizeof(T) == 0) return __ldg(reinterpret_cast<const T *>(from));
        uint8_t bytes[sizeof(T)];
        for (uint32_t i = 0; i < sizeof(T); i++) bytes[i] = __ldg(from + i);
        return load_unaligned<T>(bytes);
#else
        return load_unaligned<T>(data_ + at);
#endif
    }

    // Returns the address of the first byte, at any alignment, for code that checks its accesses itself. Nothing outside
    // the record's bytes may be read.
    MILLRACE_DEVICE const uint8_t *data() const { return data_; }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_; }

private:
    const uint8_t *data_;
    uint32_t size_;
    mutable bool out_of_bounds_;
};

// An array in the result. It is in device memory, so all lanes of a team see what each of them writes after team.sync().
// Accessing an element outside it fails the record.
template <class T>
class Array {
public:
    MILLRACE_DEVICE Array(uint8_t *at, uint32_t size)
        : at_(reinterpret_cast<T *>(at)), size_(size), sink_(), out_of_bounds_(false) {}

    MILLRACE_DEVICE uint32_t size() const { return size_; }

    MILLRACE_DEVICE T &operator[](uint32_t i) {
        if (kChecked && i >= size_) {
            out_of_bounds_ = true;
            return sink_;
        }
        return at_[i];
    }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_; }

private:
    T *at_;
    uint32_t size_;
    T sink_; // gets what is written outside the array
    bool out_of_bounds_;
};

// A byte string in the result. It is empty at first. Exceeding its capacity fails the record.
//
// One lane builds a string with push. To let all lanes write, each lane calls resize with the same size, and then sets
// its share of the bytes. Every byte must be set.
class Bytes {
public:
    MILLRACE_DEVICE Bytes(uint8_t *at, uint32_t capacity)
        : at_(at), capacity_(capacity), size_(0), sink_(0), out_of_bounds_(false) {}

    MILLRACE_DEVICE uint32_t size() const { return size_; }
    MILLRACE_DEVICE uint32_t capacity() const { return capacity_; }

    MILLRACE_DEVICE void push(uint8_t byte) {
        if (kChecked && size_ >= capacity_) {
            out_of_bounds_ = true;
            return;
        }
        at_[size_++] = byte;
    }

    MILLRACE_DEVICE void resize(uint32_t size) {
        if (kChecked && size > capacity_) {
            out_of_bounds_ = true;
            return;
        }
        size_ = size;
    }

    MILLRACE_DEVICE uint8_t &operator[](uint32_t i) {
        if (kChecked && i >= size_) {
            out_of_bounds_ = true;
            return sink_;
        }
        return at_[i];
    }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_; }

private:
    uint8_t *at_;
    uint32_t capacity_, size_;
    uint8_t sink_; // gets what is written outside the string
    bool out_of_bounds_;
};

} // namespace millrace
