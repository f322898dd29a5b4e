// Reads a record in words of 16 bytes instead of single bytes, for one thread that reads from start to end.
//
// For a GPU thread, a load of 1 byte costs the same as a load of 16. A window therefore keeps the word that contains the last
// position. Word k has the 16 bytes of the record from 16 * k on. The window cuts it out of two aligned pieces of the batch, so
// the record may start at any address. Threads that are at the same position load at the same time.
#pragma once

#include "millrace/platform.cuh"

namespace millrace {

#ifdef MILLRACE_GPU

struct Bytes16 {
    uint64_t low, high;
};

// Loads memory that doesn't change while the kernel runs, from an aligned address.
MILLRACE_DEVICE Bytes16 load_aligned(const Bytes16 *from) {
#ifdef __CUDA_ARCH__
    ulonglong2 both = __ldg(reinterpret_cast<const ulonglong2 *>(from));
    return {both.x, both.y};
#else
    Bytes16 bytes;
    memcpy(&bytes, from, sizeof bytes);
    return bytes;
#endif
}

// Returns the lower half of high:low, shifted right by `bits` bits. `bits` is less than 64.
MILLRACE_DEVICE uint64_t shift_right(uint64_t low, uint64_t high, uint32_t bits) { return low >> bits | high << 1 << (63 - bits); }

// Returns the 16 bytes that start `bytes` bytes after the start of `first`. `bytes` is less than 16.
MILLRACE_DEVICE Bytes16 join(const Bytes16 &first, const Bytes16 &second, uint32_t bytes) {
    bool half = bytes >= 8;
    uint64_t a = half ? first.high : first.low, b = half ? second.low : first.high, c = half ? second.high : second.low;
    uint32_t bits = bytes % 8 * 8;
    return {shift_right(a, b, bits), shift_right(b, c, bits)};
}

// A view of a record of a batch for one thread. Positions must be inside the record.
//
// Words at the edges of a record contain bytes of its neighbors in the batch. The window doesn't load words that
// the edge of the batch cuts, and at() returns false for their positions.
class Window {
public:
    static constexpr uint32_t kBytes = sizeof(Bytes16);

    // The record starts at data, in a batch with the bytes from `begin` to `end` - 1.
    MILLRACE_DEVICE Window(const uint8_t *data, uint32_t size, uint64_t begin, uint64_t end)
        : skew_(static_cast<uint32_t>(reinterpret_cast<uint64_t>(data)) % kBytes),
          start_(reinterpret_cast<const Bytes16 *>(data - skew_)), pieces_(0), first_(0), count_(0), index_(~0u - 1) {
        uint64_t start = reinterpret_cast<uint64_t>(start_), inside = (end - start) / kBytes;
        uint64_t own = (static_cast<uint64_t>(skew_) + size + kBytes - 1) / kBytes;
        pieces_ = static_cast<uint32_t>(own < inside ? own : inside);
        if (start < begin) first_ = 1;
        uint32_t cut = own > inside && skew_ != 0; // a word needs two pieces
        if (pieces_ > first_ + cut) count_ = pieces_ - first_ - cut;
    }

    // Moves to the word of position i, and returns whether it can be loaded. The next word needs only one more piece.
    MILLRACE_DEVICE bool at(uint32_t i) {
        uint32_t k = i / kBytes;
        if (k == index_) return true;
        if (k - first_ >= count_) return false;
        Bytes16 first = k == index_ + 1 ? second_ : piece(k);
        second_ = piece(k + 1);
        word_ = join(first, second_, skew_);
        index_ = k;
        return true;
    }

    // Returns the bytes of the current word from position i on, the first byte lowest. Bytes beyond the word are zero.
    MILLRACE_DEVICE uint64_t bytes(uint32_t i) const {
        uint32_t bits = i % 8 * 8;
        return i % kBytes < 8 ? shift_right(word_.low, word_.high, bits) : word_.high >> bits;
    }

    // Returns the byte at position i of the current word.
    MILLRACE_DEVICE uint8_t byte(uint32_t i) const {
        return static_cast<uint8_t>((i % kBytes < 8 ? word_.low : word_.high) >> i % 8 * 8);
    }

private:
    // Returns an aligned piece of the batch, or zeros if the piece is after the record.
    MILLRACE_DEVICE Bytes16 piece(uint32_t k) const { return k < pieces_ ? load_aligned(start_ + k) : Bytes16(); }

    uint32_t skew_;          // bytes from start_ to the record
    const Bytes16 *start_;   // aligned
    uint32_t pieces_;        // number of pieces of the batch that contain bytes of the record
    uint32_t first_, count_; // index of the first word that can be loaded, and number of such words
    uint32_t index_;         // index of the current word; at first, neither this word nor the next one exists
    Bytes16 word_, second_;  // the current word, and the second of its two pieces
};

#endif

} // namespace millrace
