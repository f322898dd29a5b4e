// Repeated lines and paragraphs of a text.
//
// A warp processes the lines and then the paragraphs that begin in its part of a record, and adds them to the record's set.
// Curator's paragraphs are between every two newlines, so paragraphs may be empty or begin with a newline. datatrove's paragraphs
// are between sequences of two or more newlines, after removing the spaces at the text's ends. Both kinds therefore have the same
// content, except for these newlines and spaces. datatrove's lines are all lines that aren't empty. An empty line also precedes a
// newline at the start of the text, and follows a newline at its end.
#pragma once

#include "math/quality_fields.cuh"
#include "quality_set.cuh"

namespace millrace {

// Positions of a record: [from, to).
struct QualityRange {
    uint32_t from, to;
};

__device__ inline bool nonspace_at(const QualityText &text, uint32_t position) {
    if (position - text.begin >= text.end - text.begin || is_continuation(text.at(position))) return false;
    return !is_space(character_at(text, position));
}

// Returns the text without the spaces at its ends. The range is empty if there are only spaces.
__device__ inline QualityRange trim(const QualityText &text) {
    QualityRange range = {text.end, text.end};
    uint32_t bytes = text.end - text.begin;
    for (uint32_t i = 0; i < bytes; i += 32) {
        uint32_t found = ballot(nonspace_at(text, text.begin + i + lane_id()));
        if (found == 0) continue;
        range.from = text.begin + i + lowest_bit(found);
        break;
    }
    if (range.from == text.end) return range;
    for (uint32_t i = 0; i < bytes; i += 32) { // backwards
        uint32_t found = ballot(nonspace_at(text, text.end - 1 - i - lane_id()));
        if (found == 0) continue;
        range.to = text.end - 1 - i - lowest_bit(found);
        range.to += character_bytes(text.at(range.to));
        break;
    }
    return range;
}

// The results of processing the lines.
struct QualityLineWalk {
    QualityRange lines;  // from the first to the last line that isn't empty
    uint32_t paragraphs; // number of sequences of lines without an empty line between them
    bool repeated;       // whether two lines are equal
};

class QualityRepeats {
public:
    uint32_t total; // total of the field kScanFields + lane_id()

    __device__ QualityRepeats(const QualityText &text, const QualitySet &set, uint32_t seed, QualityRange trimmed)
        : total(0), text_(text), set_(set), hash_(seed), trimmed_(trimmed) {}

    // Counts the pieces that begin in `part`. The parts of a record don't overlap. The first part begins with the record, and the
    // last part ends with it. `all` is the number of the record's paragraphs.
    __device__ void run(QualityRange part, uint32_t all) {
        if (part.from == text_.begin) count_once();
        QualityLineWalk walk = lines(part);
        bool whole = part.from == text_.begin && part.to == text_.end;
        if (whole && all_different(walk)) {
            count_different(walk, all);
        } else {
            paragraphs(part);
        }
    }

private:
    static constexpr uint32_t kAhead = 3;

    const QualityText text_;
    const QualitySet set_;
    QualityHash hash_;
    const QualityRange trimmed_;

    __device__ void add(QualityField field, uint32_t value) { total += lane_id() == field - kScanFields ? value : 0; }

    __device__ bool newline_at(uint32_t position) const { return text_.at(position) == '\n'; }

    // Counts the empty lines at both ends of the text, and datatrove's empty paragraph.
    __device__ void count_once() {
        uint32_t empty = text_.begin == text_.end ? 1 : newline_at(text_.begin) + newline_at(text_.end - 1);
        add(kGrLines, empty);
        if (empty == 2) add(kGrRepeatedLines, 1);
        if (trimmed_.from == trimmed_.to) add(kGrParagraphs, 1);
    }

    // Returns the first position from `position` on that doesn't have a newline.
    __device__ uint32_t after_newlines(uint32_t position) const {
        for (;; position += 32) {
            uint32_t others = ballot(!newline_at(position + lane_id()));
            if (others != 0) return position + lowest_bit(others);
        }
    }

    // Returns the number of newlines directly before a position.
    __device__ uint32_t newlines_before(uint32_t position) const {
        for (uint32_t count = 0;; count += 32) {
            uint32_t others = ballot(!newline_at(position - 1 - count - lane_id()));
            if (others != 0) return count + lowest_bit(others);
        }
    }

    // Hashes the bytes from a position up to the first position for which ends(position) is true, or to the end of the text. The
    // function sets *visible to true if one of these bytes is visible ASCII.
    template <class Ends>
    __device__ QualityPiece hash_until(uint32_t from, bool *visible, Ends ends) {
        uint32_t ahead[kAhead]; // the bytes of the next steps, so that their loads overlap
        for (uint32_t i = 0; i < kAhead; i++) ahead[i] = text_.at(from + i * 32 + lane_id());
        for (uint32_t start = from;; start += 32) {
            uint32_t position = start + lane_id(), byte = ahead[0];
            for (uint32_t i = 0; i + 1 < kAhead; i++) ahead[i] = ahead[i + 1];
            ahead[kAhead - 1] = text_.at(position + kAhead * 32);
            uint32_t stops = ballot(position >= text_.end || ends(position, byte));
            bool in_piece = (stops & (bits_below(lane_id()) | 1u << lane_id())) == 0;
            if (in_piece) hash_.add(byte);
            if (ballot(in_piece && byte - 0x21 < 0x5e) != 0) *visible = true;
            if (stops != 0) return {from, start + lowest_bit(stops), hash_.finish()};
        }
    }

    __device__ QualityPiece hash_range(uint32_t from, uint32_t to) {
        bool unused = false;
        return hash_until(from, &unused, [=](uint32_t position, uint32_t) { return position >= to; });
    }

    __device__ uint32_t characters(const QualityPiece &piece) const {
        uint32_t count = 0;
        for (uint32_t start = piece.from; start < piece.to; start += 32) {
            uint32_t position = start + lane_id();
            count += count_bits(ballot(position < piece.to && !is_continuation(text_.at(position))));
        }
        return count;
    }

    __device__ bool has_nonspace(const QualityPiece &piece) const {
        for (uint32_t start = piece.from; start < piece.to; start += 32) {
            uint32_t position = start + lane_id();
            if (ballot(position < piece.to && nonspace_at(text_, position)) != 0) return true;
        }
        return false;
    }

    // Adds a piece to the set, and counts the piece if the set contains an equal piece.
    __device__ void enter(QualityKind kind, const QualityPiece &piece, QualityField count, QualityField count_characters) {
        if (!set_.enter(text_.batch, kind, piece)) return;
        add(count, 1), add(count_characters, characters(piece));
    }

    __device__ QualityLineWalk lines(QualityRange part) {
        uint32_t from = part.from;
        QualityLineWalk walk = {};
        if (from != text_.begin && !newline_at(from - 1)) from = next_newline(from, part.to);
        for (;;) {
            from = from < part.to ? after_newlines(from) : from;
            if (from >= part.to) return walk;
            bool visible = false;
            QualityPiece line = hash_until(from, &visible, [](uint32_t, uint32_t byte) { return byte == '\n'; });
            add(kGrLines, 1);
            if (walk.paragraphs == 0) walk.lines.from = from;
            if (walk.paragraphs == 0 || from - walk.lines.to >= 2) walk.paragraphs++;
            walk.lines.to = from = line.to;
            if (!set_.enter(text_.batch, QualityKind::line, line)) continue;
            walk.repeated = true;
            repeated_line(line, visible || has_nonspace(line));
        }
    }

    // Returns whether all paragraphs with content are different, in a part that is the whole text. Equal paragraphs begin with equal lines.
    // This doesn't hold for paragraphs that lose spaces at an end of the text.
    __device__ bool all_different(const QualityLineWalk &walk) const {
        return walk.paragraphs != 0 && !walk.repeated && trimmed_.from == walk.lines.from && trimmed_.to == walk.lines.to;
    }

    // Counts the paragraphs of a text for which all_different is true. All empty paragraphs except one are repeated.
    __device__ void count_different(const QualityLineWalk &walk, uint32_t all) {
        uint32_t newlines = text_.end - walk.lines.to, last = newlines >= 2 && newlines % 2 == 1 ? 1 : 0; // if the number is odd, the last newline is a separate paragraph
        uint32_t empty = all - walk.paragraphs - last;
        add(kGrParagraphs, walk.paragraphs);
        if (empty > 1) add(kRepeatedParagraphs, empty - 1);
    }

    __device__ void repeated_line(const QualityPiece &line, bool nonspace) {
        uint32_t count = characters(line);
        add(kGrRepeatedLines, 1), add(kGrRepeatedLineChars, count);
        if (nonspace) add(kRepeatedLines, 1), add(kRepeatedLineChars, count);
    }

    // Returns the first newline in [position, limit), or limit.
    __device__ uint32_t next_newline(uint32_t position, uint32_t limit) const {
        for (; position < limit; position += 32) {
            uint32_t newlines = ballot(newline_at(position + lane_id()));
            if (newlines != 0) return min(position + lowest_bit(newlines), limit);
        }
        return limit;
    }

    // Returns whether the content of a paragraph begins at a position, which may be the end of the text. Content follows two or more
    // newlines, or the newlines at the start of the text.
    __device__ bool content_at(uint32_t position) const {
        if (position > text_.end || newline_at(position)) return false;
        if (position == text_.begin) return true;
        return newline_at(position - 1) && (position - 1 == text_.begin || newline_at(position - 2));
    }

    __device__ void paragraphs(QualityRange part) {
        uint32_t limit = part.to == text_.end ? part.to + 1 : part.to; // the last part has the content at the end of the text
        uint32_t position = part.from;
        for (;; position += 32) {
            if (position >= limit) return;
            uint32_t found = ballot(position + lane_id() < limit && content_at(position + lane_id()));
            if (found == 0) continue;
            position += lowest_bit(found);
            break;
        }
        while (position < limit) {
            uint32_t newlines = newlines_before(position), after_cut = newlines != position - text_.begin ? 1 : 0;
            uint32_t end = position == text_.end ? position : content(position, newlines % 2);
            empty_paragraphs(newlines / 2 - after_cut + (position == text_.end && newlines % 2 == 0 ? 1 : 0));
            if (position == text_.end && newlines % 2 == 1) {
                enter(QualityKind::paragraph, hash_range(position - 1, position), kRepeatedParagraphs, kRepeatedParagraphChars);
            }
            if (end == text_.end) return;
            position = after_newlines(end);
        }
    }

    // Counts the paragraphs whose content begins at `from`, after `newlines` newlines. Returns the end of the content.
    __device__ uint32_t content(uint32_t from, uint32_t newlines) {
        bool unused = false;
        QualityPiece plain = hash_until(from, &unused, [this](uint32_t position, uint32_t byte) { return byte == '\n' && newline_at(position + 1); });
        QualityPiece own = newlines == 0 ? plain : hash_range(from - newlines, plain.to);
        enter(QualityKind::paragraph, own, kRepeatedParagraphs, kRepeatedParagraphChars);
        uint32_t begin = max(from, trimmed_.from), end = min(plain.to, trimmed_.to);
        if (begin < end) {
            add(kGrParagraphs, 1);
            QualityPiece trimmed = begin == from && end == plain.to ? plain : hash_range(begin, end);
            enter(QualityKind::gr_paragraph, trimmed, kGrRepeatedParagraphs, kGrRepeatedParagraphChars);
        }
        return plain.to;
    }

    __device__ void empty_paragraphs(uint32_t count) {
        if (count == 0) return;
        bool seen = set_.enter(text_.batch, QualityKind::paragraph, {text_.begin, text_.begin, 0});
        add(kRepeatedParagraphs, seen ? count : count - 1);
    }
};

} // namespace millrace
