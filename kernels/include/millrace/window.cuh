// Reads a record that one thread reads from start to end, in aligned words of 8 or 16 bytes instead of single bytes.
//
// A load of the GPU costs the same for 1 and for 16 bytes of a thread. So a window keeps the word that contains the last
// position, and loads the next one while the thread works. Word k has the bytes of the record from k * kBytes on, at any
// alignment. Threads that are at the same position therefore load at the same time.
#pragma once

#include "millrace/platform.cuh"

namespace millrace {

#ifdef MILLRACE_GPU

template <uint32_t kCount>
struct Words {
    uint64_t word[kCount];
};

// Loads memory that doesn't change while the kernel runs, from an aligned address.
MILLRACE_DEVICE Words<1> load_aligned(const Words<1> *from) {
#ifdef __CUDA_ARCH__
    return {{__ldg(reinterpret_cast<const unsigned long long *>(from))}};
#else
    Words<1> words;
    memcpy(&words, from, sizeof words);
    return words;
#endif
}

MILLRACE_DEVICE Words<2> load_aligned(const Words<2> *from) {
#ifdef __CUDA_ARCH__
    ulonglong2 both = __ldg(reinterpret_cast<const ulonglong2 *>(from));
    return {{both.x, both.y}};
#else
    Words<2> words;
    memcpy(&words, from, sizeof words);
    return words;
#endif
}

// Returns the lower half of high:low, shifted right by that many bits, less than 64.
MILLRACE_DEVICE uint64_t shift_right(uint64_t low, uint64_t high, uint32_t bits) { return low >> bits | high << 1 << (63 - bits); }

// Returns the words that start that many bytes after the first of low, less than the size of low.
MILLRACE_DEVICE Words<1> join(const Words<1> &low, const Words<1> &high, uint32_t bytes) {
    return {{shift_right(low.word[0], high.word[0], 8 * bytes)}};
}

MILLRACE_DEVICE Words<2> join(const Words<2> &low, const Words<2> &high, uint32_t bytes) {
    bool half = bytes >= 8;
    uint64_t a = half ? low.word[1] : low.word[0], b = half ? high.word[0] : low.word[1], c = half ? high.word[1] : high.word[0];
    return {{shift_right(a, b, bytes % 8 * 8), shift_right(b, c, bytes % 8 * 8)}};
}

// A record of a batch, as one thread reads it. Positions must be inside the record.
//
// Words at the edges of a record contain bytes of its neighbors in the batch. Words that the edge of the batch cuts
// aren't loaded: at() reports that a position is in one of them.
template <uint32_t kCount, bool kAhead>
class Window {
public:
    static constexpr uint32_t kBytes = 8 * kCount;

    // The record is from data on, in a batch of the bytes from `begin` up to, but not including, `end`.
    MILLRACE_DEVICE Window(const uint8_t *data, uint32_t size, uint64_t begin, uint64_t end)
        : skew_(static_cast<uint32_t>(reinterpret_cast<uint64_t>(data)) % kBytes),
          start_(reinterpret_cast<const Words<kCount> *>(data - skew_)), pieces_(0), first_(0), count_(0), index_(~0u - 1) {
        uint64_t start = reinterpret_cast<uint64_t>(start_), inside = (end - start) / kBytes;
        uint64_t own = (static_cast<uint64_t>(skew_) + size + kBytes - 1) / kBytes;
        pieces_ = static_cast<uint32_t>(own < inside ? own : inside);
        if (start < begin) first_ = 1;
        uint32_t cut = own > inside && skew_ != 0; // a word needs two pieces
        if (pieces_ > first_ + cut) count_ = pieces_ - first_ - cut;
    }

    // Moves to the word of position i, and reports whether it can be loaded.
    MILLRACE_DEVICE bool at(uint32_t i) {
        uint32_t k = i / kBytes;
        if (k == index_) return true;
        if (k - first_ >= count_) return false;
        bool next = k == index_ + 1;
        Words<kCount> low = next ? held_ : piece(k);
        held_ = kAhead && next ? ahead_ : piece(k + 1);
        if (kAhead) ahead_ = piece(k + 2);
        word_ = join(low, held_, skew_);
        index_ = k;
        return true;
    }

    // Returns the bytes of the current word from position i on, the first one lowest. Only those of the word are set.
    MILLRACE_DEVICE uint64_t bytes(uint32_t i) const {
        if (kCount == 1) return word_.word[0] >> i % 8 * 8;
        uint64_t low = word_.word[0], high = word_.word[kCount - 1];
        return i % 16 < 8 ? shift_right(low, high, i % 8 * 8) : high >> i % 8 * 8;
    }

    // Returns the byte at position i of the current word.
    MILLRACE_DEVICE uint8_t byte(uint32_t i) const {
        uint64_t half = kCount == 1 || i % 16 < 8 ? word_.word[0] : word_.word[kCount - 1];
        return static_cast<uint8_t>(half >> i % 8 * 8);
    }

private:
    // Returns an aligned piece of the batch, or zeros if it is after the record.
    MILLRACE_DEVICE Words<kCount> piece(uint32_t k) const { return k < pieces_ ? load_aligned(start_ + k) : Words<kCount>(); }

    uint32_t skew_;               // bytes from start_ to the record
    const Words<kCount> *start_;  // aligned
    uint32_t pieces_;             // from start_ on: those with bytes of the record, inside the batch
    uint32_t first_, count_;      // the words that can be loaded
    uint32_t index_;              // of the current word
    Words<kCount> word_;          // the current word
    Words<kCount> held_, ahead_;  // the pieces index_ + 1 and index_ + 2
};

#endif

} // namespace millrace
