// Counts the characters of a text's duplicate n-grams, for n from 5 to 10. An n-gram of words is a duplicate if an equal n-gram
// begins at a smaller position.
//
// A block processes one record. It lists the words. It then assigns a class to each word, and later to each n-gram: the position
// of the first equal word or n-gram. Two n-grams are equal if their parts are equal. The parts are two words for n = 2, two
// 2-grams for n = 4, and otherwise the first and the last n-1 words. The pair of the parts' classes is therefore an exact key,
// and only n-grams of two repeated parts need a place in the table. In most texts, few n-grams remain after n = 4. If all words
// are equal, the table has only one entry, so the time is proportional to the length of these texts, too.
//
// Curator iterates over the n-grams. For each n-gram that it has seen before, it adds the characters of the words that aren't counted yet,
// and one space between two counted words. The sum doesn't need this iteration: each word that a seen n-gram covers counts once, with one
// space. The first word of a seen n-gram has no space if the n-gram covers no word of an earlier seen n-gram.
#pragma once

#include "math/quality_fields.cuh"
#include "quality_set.cuh"

namespace millrace {

constexpr uint32_t kLeastGram = 5, kMostGram = 10, kGramCounters = kMostGram - kLeastGram + 1;
constexpr uint32_t kShortWord = 32; // maximum bytes of a word that one thread hashes and compares; a warp processes longer words

// Equal words or n-grams form a class. Entries of the table and classes contain the position of the class's first member. A class
// has the bit kAlone if it has one member. kNoEntry is an empty entry, and the class of an n-gram that can't be repeated.
constexpr uint32_t kAlone = 1u << 31, kNoEntry = 0xffffffffu;

// The number of 32-bit integers of memory per word of a record.
constexpr uint32_t kNgramMemory = 6;

// Returns the maximum number of words in a text of the given number of bytes.
MILLRACE_BOTH uint64_t most_words(uint64_t bytes) { return (bytes + 1) / 2; }

// The shared memory of a block.
struct NgramShared {
    uint32_t words[32];               // number of words that begin in each warp's part of the text
    uint32_t repeated[kMostGram + 1]; // number of repeated n-grams for each n; for n = 1, of repeated words
    uint32_t totals[kGramCounters];
};

// Returns whether a byte of the text, which the caller has read, belongs to a space.
__device__ inline bool space_at(const QualityText &text, uint32_t position, uint32_t byte) {
    if (byte < 0x80) return is_space(byte);
    while (is_continuation(text.at(position))) position--;
    return is_wide_space(character_at(text, position));
}

// The search of one record by a block of kThreads threads.
template <uint32_t kThreads>
class NgramSearch {
public:
    // `memory` has kNgramMemory * words integers. `words` is the number of the text's words, at least 1.
    __device__ NgramSearch(const QualityText &text, uint32_t words, uint32_t *memory, NgramShared *shared, uint32_t seed)
        : text_(text), words_(words), starts_(memory), bytes_(memory + words), characters_(bytes_ + words), classes_(characters_ + words),
          table_(classes_ + words), capacity_(2 * words), shared_(shared), seed_(seed), byte_coefficient_(hash_coefficient(seed, 33)),
          first_coefficient_(hash_coefficient(seed, 34)), last_coefficient_(hash_coefficient(seed, 35)) {}

    // Counts the duplicate n-grams. The totals are valid after the next __syncthreads.
    __device__ void run() {
        for (uint32_t i = threadIdx.x; i <= kMostGram; i += kThreads) shared_->repeated[i] = 0;
        for (uint32_t i = threadIdx.x; i < kGramCounters; i += kThreads) shared_->totals[i] = 0;
        list_words();
        __syncthreads();
        measure_words();
        clear();
        __syncthreads();
        enter_words();
        __syncthreads();
        settle(1, classes_);
        uint32_t *from = classes_, *to = starts_; // the words' starts are no longer needed
        // An n-gram consists of two (n-step)-grams. The second one begins `step` words after the first one.
        for (uint32_t n = 2, step = 1; n <= kMostGram && n <= words_; step = n == 2 ? 2 : 1, n += step) {
            __syncthreads();
            capacity_ = 2 * shared_->repeated[n - step];
            if (capacity_ == 0) return;
            clear();
            __syncthreads();
            enter_grams(n, step, from, to);
            __syncthreads();
            settle(n, to);
            uint32_t *swapped = from;
            from = to, to = swapped;
            if (n < kLeastGram) continue;
            __syncthreads();
            add_covered(n, from);
        }
    }

private:
    const QualityText text_;
    const uint32_t words_;
    uint32_t *const starts_, *const bytes_, *const characters_; // of each word
    uint32_t *const classes_;                                   // class of each word; before that, the word's hash and then its place in the table
    uint32_t *const table_;
    uint32_t capacity_; // number of places in the table, which is above the number of different keys
    NgramShared *const shared_;
    const uint32_t seed_, byte_coefficient_, first_coefficient_, last_coefficient_;

    static constexpr uint32_t kAhead = 4;

    // Returns the index of the first of the 32 words that the warp processes first. The warp's next words are kThreads words later.
    static __device__ uint32_t first_of_warp() { return threadIdx.x / 32 * 32; }

    __device__ void clear() const {
        for (uint32_t i = threadIdx.x; i < capacity_; i += kThreads) table_[i] = kNoEntry;
    }

    // Calls found(mask, position) with the words' starts of every 32 bytes of [from, to).
    template <class Found>
    __device__ void find_starts(uint32_t from, uint32_t to, Found found) const {
        uint32_t after_space = from == text_.begin || (from < to && space_at(text_, from - 1, text_.at(from - 1))) ? 1 : 0;
        for (; from < to; from += kAhead * 32) {
            uint32_t bytes[kAhead]; // read in advance, so that the loads overlap
            for (uint32_t i = 0; i < kAhead; i++) bytes[i] = text_.at(from + i * 32 + lane_id());
            for (uint32_t i = 0; i < kAhead; i++) {
                uint32_t start = from + i * 32, position = start + lane_id();
                uint32_t spaces = ballot(position >= to || space_at(text_, position, bytes[i]));
                found(~spaces & (spaces << 1 | after_space), start);
                after_space = spaces >> 31;
            }
        }
    }

    // Lists the positions at which words start. Each warp processes a part of the text. It counts the part's words, and then
    // lists them after the words of the previous warps.
    __device__ void list_words() const {
        uint32_t steps = (text_.end - text_.begin + 31) / 32, warp = threadIdx.x / 32;
        uint32_t share = (steps + kThreads / 32 - 1) / (kThreads / 32) * 32;
        uint32_t from = min(text_.begin + warp * share, text_.end), to = min(from + share, text_.end), count = 0;
        find_starts(from, to, [&](uint32_t mask, uint32_t) { count += count_bits(mask); });
        if (lane_id() == 0) shared_->words[warp] = count;
        __syncthreads();
        uint32_t next = reduce_add(lane_id() < warp ? shared_->words[lane_id()] : 0);
        find_starts(from, to, [&](uint32_t mask, uint32_t position) {
            if (mask >> lane_id() & 1) starts_[next + count_bits(mask & bits_below(lane_id()))] = position + lane_id();
            next += count_bits(mask);
        });
    }

    // Returns whether a word ends before a position. `byte` is the byte at that position.
    __device__ bool ends_at(uint32_t position, uint32_t byte) const {
        if (position == text_.end) return true;
        return byte < 0x80 ? is_space(byte) : !is_continuation(byte) && is_wide_space(character_at(text_, position));
    }

    // Counts the bytes and characters of the words, and computes their hashes.
    __device__ void measure_words() const {
        for (uint32_t from = first_of_warp(); from < words_; from += kThreads) {
            uint32_t w = from + lane_id();
            bool is_long = w < words_ && !measure_short(w);
            for (uint32_t longs = ballot(is_long); longs != 0; longs &= longs - 1) measure_long(from + lowest_bit(longs));
        }
    }

    // Measures a word with one lane. Returns false if the word has more than kShortWord bytes.
    __device__ bool measure_short(uint32_t w) const {
        uint32_t start = starts_[w], hash = 0, characters = 0, bytes = 0;
        for (;; bytes++) {
            uint32_t byte = text_.at(start + bytes);
            if (ends_at(start + bytes, byte)) break;
            if (bytes == kShortWord) return false;
            hash = hash_add(hash_multiply(hash, byte_coefficient_), byte);
            characters += is_continuation(byte) ? 0 : 1;
        }
        bytes_[w] = bytes, characters_[w] = characters, classes_[w] = murmur3_finish(hash, bytes);
        return true;
    }

    __device__ void measure_long(uint32_t w) const {
        QualityHash hash(seed_);
        uint32_t start = starts_[w], from = start, characters = 0, stops = 0;
        for (; stops == 0; from += 32) {
            uint32_t position = from + lane_id(), byte = text_.at(position);
            stops = ballot(position >= text_.end || ends_at(position, byte));
            bool in_word = (stops & (bits_below(lane_id()) | 1u << lane_id())) == 0;
            if (in_word) hash.add(byte);
            characters += count_bits(ballot(in_word && !is_continuation(byte)));
        }
        uint32_t bytes = from - 32 + lowest_bit(stops) - start, value = murmur3_finish(hash.finish(), bytes);
        if (lane_id() == 0) bytes_[w] = bytes, characters_[w] = characters, classes_[w] = value;
    }

    // Returns the first place for a hash in the table.
    __device__ uint32_t place_of(uint32_t hash) const { return static_cast<uint32_t>(static_cast<uint64_t>(hash) * capacity_ >> 32); }
    __device__ uint32_t place_after(uint32_t place) const { return place + 1 == capacity_ ? 0 : place + 1; }

    // Writes an entry to a place if the place is empty. Returns kNoEntry on success, or else the place's entry.
    __device__ uint32_t claim(uint32_t place, uint32_t own) const {
        uint32_t found = *const_cast<volatile uint32_t *>(table_ + place);
        return found != kNoEntry ? found : atomicCAS(table_ + place, kNoEntry, own | kAlone);
    }

    // Combines an entry with an equal entry that claim has found.
    __device__ void combine(uint32_t place, uint32_t found, uint32_t own) const {
        if (found > own) atomicMin(table_ + place, min(found & ~kAlone, own)); // an entry with kAlone is always greater
    }

    // Enters a word or n-gram into the table, and returns its place. equal(other) compares it with another entry.
    template <class Equal>
    __device__ uint32_t enter(uint32_t own, uint32_t hash, Equal equal) const {
        for (uint32_t place = place_of(hash);; place = place_after(place)) {
            uint32_t found = claim(place, own);
            if (found == kNoEntry) return place;
            if (!equal(found & ~kAlone)) continue;
            combine(place, found, own);
            return place;
        }
    }

    __device__ void enter_words() const {
        for (uint32_t from = first_of_warp(); from < words_; from += kThreads) {
            uint32_t w = from + lane_id();
            bool is_long = w < words_ && bytes_[w] > kShortWord;
            if (w < words_ && !is_long) classes_[w] = enter(w, classes_[w], [this, w](uint32_t other) { return equal_short(w, other); });
            for (uint32_t longs = ballot(is_long); longs != 0; longs &= longs - 1) enter_long(from + lowest_bit(longs));
        }
    }

    __device__ bool equal_short(uint32_t a, uint32_t b) const {
        uint32_t bytes = bytes_[a];
        if (bytes_[b] != bytes) return false;
        const uint8_t *of_a = text_.batch + starts_[a], *of_b = text_.batch + starts_[b];
        for (uint32_t i = 0; i < bytes; i++) {
            if (byte_at(of_a + i) != byte_at(of_b + i)) return false;
        }
        return true;
    }

    __device__ void enter_long(uint32_t w) const {
        uint32_t bytes = bytes_[w], place = place_of(classes_[w]);
        __syncwarp(); // all lanes have read the hash
        for (;; place = place_after(place)) {
            uint32_t found = shuffle(lane_id() == 0 ? claim(place, w) : 0, 0), other = found & ~kAlone;
            if (found != kNoEntry && (bytes_[other] != bytes || !equal_bytes(text_.batch, starts_[w], starts_[other], bytes))) continue;
            if (lane_id() == 0 && found != kNoEntry) combine(place, found, w);
            if (lane_id() == 0) classes_[w] = place;
            return;
        }
    }

    // Enters the n-grams whose parts are repeated. `classes` has the classes of (n-step)-grams.
    __device__ void enter_grams(uint32_t n, uint32_t step, const uint32_t *classes, uint32_t *places) const {
        uint32_t grams = words_ - n + 1;
        for (uint32_t w = threadIdx.x; w < grams; w += kThreads) {
            uint32_t first = classes[w], last = classes[w + step];
            if (((first | last) & kAlone) != 0) {
                places[w] = kNoEntry;
                continue;
            }
            uint32_t hash = hash_add(hash_multiply(first, first_coefficient_), hash_multiply(last, last_coefficient_));
            places[w] = enter(w, murmur3_finish(hash, n), [=](uint32_t other) { return classes[other] == first && classes[other + step] == last; });
        }
    }

    // Replaces the places of n-grams by their classes, and counts the repeated ones.
    __device__ void settle(uint32_t n, uint32_t *places) const {
        uint32_t grams = words_ - n + 1, repeated = 0;
        for (uint32_t from = first_of_warp(); from < grams; from += kThreads) {
            uint32_t w = from + lane_id(), found = kNoEntry;
            if (w < grams && places[w] != kNoEntry) places[w] = found = table_[places[w]];
            repeated += count_bits(ballot((found & kAlone) == 0));
        }
        if (lane_id() == 0 && repeated != 0) atomicAdd(&shared_->repeated[n], repeated);
    }

    // Adds the characters of the words that seen n-grams cover, and their spaces.
    __device__ void add_covered(uint32_t n, const uint32_t *classes) const {
        uint32_t grams = words_ - n + 1, sum = 0;
        for (uint32_t from = first_of_warp(); from < words_; from += kThreads) {
            uint32_t w = from + lane_id();
            uint32_t seen = ballot(w < grams && classes[w] < w), before = ballot(from != 0 && w - 32 < grams && classes[w - 32] < w - 32);
            uint64_t both = static_cast<uint64_t>(seen) << 32 | before, earlier = 0; // words that n-grams with earlier starts cover
            for (uint32_t i = 1; i < n; i++) earlier |= both << i;
            uint32_t continued = static_cast<uint32_t>(earlier >> 32), covered = seen | continued;
            if (covered >> lane_id() & 1) sum += characters_[w] + (continued >> lane_id() & 1);
        }
        uint32_t total = reduce_add(sum);
        if (lane_id() == 0 && total != 0) atomicAdd(&shared_->totals[n - kLeastGram], total);
    }
};

} // namespace millrace
