// The input and output of an operator's code: a record, and the arrays and byte strings of a result.
#pragma once

#include "millrace/platform.cuh"
#include "millrace/window.cuh"

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

// The order in which a GPU's thread reads a record. Code for one thread usually reads the record from start to end.
enum class Reading { anywhere, in_order };

// The bytes of one record. A read outside of the record returns 0 and fails the record.
class Record {
public:
    // The record is in a batch at the addresses from `begin` to `end` - 1. The record reads no other addresses.
    MILLRACE_DEVICE Record(const uint8_t *data, uint32_t size, [[maybe_unused]] const uint8_t *begin,
                           [[maybe_unused]] const uint8_t *end, [[maybe_unused]] Reading reading)
        : data_(data), size_(size), out_of_bounds_(false)
#ifdef MILLRACE_GPU
          ,
          begin_(reinterpret_cast<uint64_t>(begin)), end_(reinterpret_cast<uint64_t>(end)), windowed_(reading == Reading::in_order),
          window_(data, size, begin_, end_)
#endif
    {
    }

    MILLRACE_DEVICE Record(const uint8_t *data, uint32_t size) : Record(data, size, data, data + size, Reading::anywhere) {}

    MILLRACE_DEVICE uint32_t size() const { return size_; }
    MILLRACE_DEVICE bool empty() const { return size_ == 0; }

    MILLRACE_DEVICE uint8_t operator[](uint32_t i) const {
        if (kChecked && i >= size_) {
            out_of_bounds_ = true;
            return 0;
        }
#ifdef MILLRACE_GPU
        if (windowed_ && window_.at(i)) return window_.byte(i);
        return __ldg(data_ + i);
#else
        return data_[i];
#endif
    }

    // Returns the little-endian number at position `at`, which need not be aligned.
    template <class T>
    MILLRACE_DEVICE T load(uint32_t at) const {
        if (kChecked && (size_ < sizeof(T) || at > size_ - sizeof(T))) {
            out_of_bounds_ = true;
            return T();
        }
#ifdef MILLRACE_GPU
        uint64_t bits = windowed_ ? load_in_order<sizeof(T)>(at) : load_anywhere<sizeof(T)>(at);
        return load_unaligned<T>(&bits);
#else
        return load_unaligned<T>(data_ + at);
#endif
    }

    // Returns the address of the first byte, for code that checks its accesses itself. The address may have any alignment. The
    // code must not read outside the record's bytes.
    MILLRACE_DEVICE const uint8_t *data() const { return data_; }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_; }

private:
    const uint8_t *data_;
    uint32_t size_;
    mutable bool out_of_bounds_;

#ifdef MILLRACE_GPU
    template <uint32_t kBytes>
    MILLRACE_DEVICE uint64_t load_bytes(uint32_t at) const {
        uint64_t bits = 0;
        for (uint32_t i = 0; i < kBytes; i++) bits |= static_cast<uint64_t>(__ldg(data_ + at + i)) << 8 * i;
        return bits;
    }

    template <uint32_t kBytes>
    MILLRACE_DEVICE uint64_t load_in_order(uint32_t at) const {
        static_assert(kBytes <= 8, "load reads numbers of at most 8 bytes");
        if (!window_.at(at)) return load_bytes<kBytes>(at);
        uint64_t bits = window_.bytes(at);
        uint32_t here = Window::kBytes - at % Window::kBytes; // bytes in the current word
        if (here >= kBytes) return bits;
        if (!window_.at(at + here)) return load_bytes<kBytes>(at);
        return bits | window_.bytes(at + here) << 8 * here;
    }

    // Loads a number at any address as two or three aligned words of 4 bytes, unless they are outside the batch.
    template <uint32_t kBytes>
    MILLRACE_DEVICE uint64_t load_anywhere(uint32_t at) const {
        static_assert(kBytes <= 8, "load reads numbers of at most 8 bytes");
        uint64_t from = reinterpret_cast<uint64_t>(data_) + at, aligned = from / 4 * 4;
        if (from % kBytes == 0) return load_number<kBytes>(data_ + at);
        if (kBytes < 4 || aligned < begin_ || aligned + kBytes + 4 > end_) return load_bytes<kBytes>(at);
        const uint8_t *word = data_ + at - from % 4;
        uint64_t low = load_number<4>(word), high = load_number<4>(word + 4);
        uint32_t shift = 8 * static_cast<uint32_t>(from % 4);
        uint64_t bits = (high << 32 | low) >> shift;
        if (kBytes == 8 && shift != 0) bits |= load_number<4>(word + 8) << (64 - shift);
        return bits;
    }

    // Loads a number from an aligned address.
    template <uint32_t kBytes>
    static MILLRACE_DEVICE uint64_t load_number(const uint8_t *from) {
#ifdef __CUDA_ARCH__
        if (kBytes == 1) return __ldg(from);
        if (kBytes == 2) return __ldg(reinterpret_cast<const uint16_t *>(from));
        if (kBytes == 4) return __ldg(reinterpret_cast<const uint32_t *>(from));
        return __ldg(reinterpret_cast<const uint64_t *>(from));
#else
        uint64_t bits = 0;
        memcpy(&bits, from, kBytes);
        return bits;
#endif
    }

    uint64_t begin_, end_; // addresses of the batch
    bool windowed_;
    mutable Window window_;
#endif
};

// An array in the result. The array is in device memory, so after team.sync(), each lane of a team sees the other lanes' writes.
// An access outside of the array fails the record.
template <class T>
class Array {
public:
    MILLRACE_DEVICE Array(uint8_t *at, uint32_t size)
        : elements_(reinterpret_cast<T *>(at)), size_(size), sink_(), out_of_bounds_(false) {}

    MILLRACE_DEVICE uint32_t size() const { return size_; }

    MILLRACE_DEVICE T &operator[](uint32_t i) {
        if (kChecked && i >= size_) {
            out_of_bounds_ = true;
            return sink_;
        }
        return elements_[i];
    }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_; }

private:
    T *elements_;
    uint32_t size_;
    T sink_; // target of writes outside the array
    bool out_of_bounds_;
};

// A byte string in the result. The string is empty at first. If it exceeds its capacity, the record fails.
//
// One lane builds a string with push. If all lanes write, each lane calls resize with the same size, and then sets its
// share of the bytes. Every byte must be set.
class Bytes {
public:
    MILLRACE_DEVICE Bytes(uint8_t *at, uint32_t capacity)
        : contents_(at), capacity_(capacity), size_(0), sink_(0), out_of_bounds_(false) {}

    MILLRACE_DEVICE uint32_t size() const { return size_; }
    MILLRACE_DEVICE uint32_t capacity() const { return capacity_; }

    MILLRACE_DEVICE void push(uint8_t byte) {
        if (kChecked && size_ >= capacity_) {
            out_of_bounds_ = true;
            return;
        }
        contents_[size_++] = byte;
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
        return contents_[i];
    }

    MILLRACE_DEVICE bool out_of_bounds_occurred() const { return out_of_bounds_; }

private:
    uint8_t *contents_;
    uint32_t capacity_, size_;
    uint8_t sink_; // target of writes outside the string
    bool out_of_bounds_;
};

} // namespace millrace
