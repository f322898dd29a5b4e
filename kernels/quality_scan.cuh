// The scan of a text by one warp: all counters except those of repeated lines and paragraphs.
//
// The warp reads 32 bytes at a time, one per lane. Each lane looks up the class of its byte. Ballots turn classes into masks of
// 32 bytes, so that finding the beginning of a word or a line is arithmetic on masks. The state between two steps describes the
// beginnings of the word, the line and the paragraph that continue.
//
// Cost of 32 bytes, in instructions of a warp on compute capability 9.0: 356 for random ASCII, where a line of datatrove ends in
// most steps (Nsight Compute). At 40 GB/s, an H100 can issue at most 740 instructions per 32 bytes.
#pragma once

#include "quality_lines.cuh"
#include "quality_phrases.cuh"
#include "quality_wide.cuh"

namespace millrace {

// The bits of a segment of a long record for the paragraphs at its ends. The head is the paragraph that began before the segment, and the
// tail is the one that continues after it. Without kCut, both are the same paragraph, and the tail's bits are valid.
constexpr uint32_t kCut = 1, kHeadPolicy = 2, kHeadLorem = 4, kTailPolicy = 8, kTailLorem = 16;

struct QualityParagraphs {
    uint32_t newlines;  // number of newlines directly before the next byte
    bool policy, lorem; // whether the current paragraph contains phrases
    bool headless;      // whether the current paragraph began before the segment
    uint32_t ends;      // kCut and the bits of the head

    // Counts the paragraphs that end in 32 bytes: at every second newline of a sequence.
    __device__ void count(uint32_t newline_mask, const QualityFound &found, QualityTally *tally) {
        uint32_t cuts = newline_mask == 0 ? 0 : find_cuts(newline_mask);
        newlines = newline_mask == kWholeWarp ? newlines + 32 : lowest_bit(~newline_mask);
        if (cuts != 0) cut(cuts, found, tally);
        uint32_t rest = bytes_after(cuts);
        policy = policy || (found.policy & rest) != 0;
        lorem = lorem || (found.lorem & rest) != 0;
    }

    // Returns the segment's bits.
    __device__ uint32_t summary() const { return ends | (policy ? kTailPolicy : 0) | (lorem ? kTailLorem : 0); }

private:
    __device__ uint32_t find_cuts(uint32_t newline_mask) const {
        uint32_t others = ~newline_mask & bytes_before();
        uint32_t before = others == 0 ? place() + newlines : place() - last_place(others) - 1; // newlines directly before this byte
        return ballot((newline_mask >> lane_id() & 1) && before % 2 == 1);
    }

    __device__ void cut(uint32_t cuts, const QualityFound &found, QualityTally *tally) {
        uint32_t before = bytes_before(), earlier_cuts = cuts & before, range = before & bytes_after(earlier_cuts);
        tally->add(kParagraphs, count_bits(cuts));
        if ((cuts >> lane_id() & 1) && !(headless && earlier_cuts == 0)) {
            bool first = earlier_cuts == 0;
            tally->dt += ((found.policy & range) != 0 || (first && policy) ? 1u << 16 : 0) +
                         ((found.lorem & range) != 0 || (first && lorem) ? 1u << 24 : 0);
        }
        if (headless) {
            uint32_t head = ~(kWholeWarp >> first_place(cuts));
            ends |= (policy || (found.policy & head) != 0 ? kHeadPolicy : 0) | (lorem || (found.lorem & head) != 0 ? kHeadLorem : 0);
        }
        ends |= kCut;
        policy = lorem = headless = false;
    }
};

class QualityScan {
public:
    QualityTally tally;
    QualityWide wide;
    QualityParagraphs paragraphs;

    // `classes` has the class of each byte below 0x80.
    __device__ QualityScan(const QualityText &text, const uint32_t *classes)
        : tally(), wide(), paragraphs(), text_(text), classes_(classes), beginning_(quality_beginnings.slots[lane_id()]), word_(),
          lines_{{0, kNowhere, kNowhere}, {0, kNowhere, kNowhere}}, urls_(), byte_(0), pair_(0), quad_(0) {}

    // Scans from a position that is the start of the record or follows a newline. The scan ends at the record's end or at the
    // next segment. The next segment begins at the first byte from `limit` on that follows a newline and isn't a newline.
    __device__ void run(uint32_t from, uint32_t limit) {
        uint32_t to = text_.end, steps = 0;
        bool whole = true; // up to the end of the record
        paragraphs.headless = from != text_.begin;
        uint32_t next = load(from + place());
        for (uint32_t start = from; start <= to; start += 32) { // the last step contains the end of the last word and line
            uint32_t byte = next;
            next = load(start + 32 + place());
            if (whole && start + 31 >= limit && limit < text_.end) {
                uint32_t stop = segment_end(byte, start, limit);
                if (stop != kNowhere) to = stop, whole = false;
            }
            step(byte, next, start, to, whole && to - start < 32 ? kFirstByte >> (to - start) : 0);
            if (++steps == QualityTally::kMostTallied) tally.flush(), steps = 0;
        }
        tally.finish();
    }

private:
    const QualityText text_;
    const uint32_t *classes_;
    const uint32_t beginning_; // the entry of QualityBeginnings for this lane
    QualityWord word_;
    QualityLines lines_;
    QualityUrls urls_;
    uint32_t byte_, pair_, quad_; // values of the previous step

    __device__ uint32_t load(uint32_t position) const { return position < text_.end ? byte_at(text_.batch + position) : 0; }

    __device__ uint32_t segment_end(uint32_t byte, uint32_t start, uint32_t limit) const {
        uint32_t position = start + place(), newlines = ballot(byte == '\n');
        uint32_t follow = newlines >> 1 | (paragraphs.newlines != 0 ? kFirstByte : 0);
        uint32_t possible = ballot(position >= limit && position < text_.end) & follow & ~newlines;
        return possible == 0 ? kNowhere : start + first_place(possible);
    }

    __device__ QualityMasks classify(uint32_t byte, uint32_t next, uint32_t position, uint32_t to) {
        bool inside = position < to;
        uint32_t bits = !inside ? kSpace : byte < 0x80 ? classes_[byte] : 0;
        if ((ballot(inside && byte >= 0x80) | wide.continued) != 0) bits = wide_classes(&wide, bits, byte, next, inside);
        tally.plain += bits & 0x01010101, tally.characters += bits >> 1 & 0x01010101;
        bool line_end = (bits & kLineEnd) != 0;
        if (line_end && byte == '\r' && text_.at(position + 1) == '\n') line_end = false; // the newline ends the line
        return {ballot(bits & kCharacter), ballot(bits & kSpace), ballot(bits & kAlphabetic),
                ballot(bits & kHash), ballot(bits & kNewline), ballot(line_end)};
    }

    __device__ void step(uint32_t byte, uint32_t next, uint32_t start, uint32_t to, uint32_t end_of_text) {
        uint32_t position = start + place();
        QualityMasks masks = classify(byte, next, position, to);
        uint32_t pair = byte << 8 | earlier(byte, byte_, 1), quad = pair << 16 | earlier(pair, pair_, 2);
        uint32_t quad_before = earlier(quad, quad_, 1);
        byte_ = byte, pair_ = pair, quad_ = quad;
        QualityFound found = {0, 0};
        if (masks.newlines == kWholeWarp && paragraphs.newlines >= 32) { // a shortcut for millions of newlines
            tally.more_lines += 1u << 24;
        } else {
            count_words(text_, start, masks, quad_before, &word_, &tally);
            found = search(quad, position, position < to);
            lines_.count(text_, start, masks, end_of_text, &tally);
        }
        paragraphs.count(masks.newlines, found, &tally);
    }

    // Searches for URLs and phrases whose first four bytes end at the lanes.
    __device__ QualityFound search(uint32_t quad, uint32_t position, bool inside) {
        uint32_t lower = quad | kLowerCase;
        bool candidate = shuffle(beginning_, beginning_slot(lower)) == lower && inside;
        if (ballot(candidate) == 0) return {0, 0};
        for (uint32_t http = ballot(candidate && quad == kHttp); http != 0; http &= ~(kFirstByte >> first_place(http))) {
            urls_.count(text_, classes_, position - place() + first_place(http) - 3, &tally);
        }
        return find_phrases(text_, position - 3, candidate ? lower : 0);
    }
};

} // namespace millrace
