// Finds the lines in 32 bytes of text: Curator's lines, which end at newlines, and datatrove's lines, which end where Python's
// str.splitlines ends them.
#pragma once

#include "quality_words.cuh"

namespace millrace {

constexpr uint32_t kNowhere = 0xffffffffu; // no position
constexpr uint32_t kMostShort = 30, kLeastLong = 200; // characters of short_lines and long_lines

// The beginning of the line that continues in the next 32 bytes.
struct QualityLine {
    uint32_t characters;
    uint32_t first, last; // positions of the first and the last byte that isn't a space, or kNowhere

    // Adds the bytes of `range` to the beginning.
    __device__ void extend(uint32_t start, const QualityMasks &masks, uint32_t range) {
        uint32_t letters = ~masks.spaces & range;
        characters += count_bits(masks.characters & range);
        if (letters == 0) return;
        if (first == kNowhere) first = start + first_place(letters);
        last = start + last_place(letters);
    }
};

// Returns the line that ends before this lane's byte. The bits of `breaks` are the ends of lines.
__device__ inline QualityLine line_before(uint32_t start, const QualityMasks &masks, uint32_t breaks, const QualityLine &begun) {
    uint32_t before = bytes_before(), earlier_breaks = breaks & before;
    QualityLine line = begun;
    if (earlier_breaks != 0) line = {0, kNowhere, kNowhere};
    line.extend(start, masks, before & bytes_after(earlier_breaks));
    return line;
}

// Moves to the line that continues after the 32 bytes.
__device__ inline void continue_line(uint32_t start, const QualityMasks &masks, uint32_t breaks, QualityLine *line) {
    if (breaks != 0) *line = {0, kNowhere, kNowhere};
    line->extend(start, masks, bytes_after(breaks));
}

// Counts a line of Curator, which ends before `end`.
__device__ inline void count_line(const QualityText &text, const QualityLine &line, uint32_t end, QualityTally *tally) {
    if (line.characters >= kLeastLong) tally->more_lines += 1u << 16;
    if (line.first == kNowhere) return;
    uint32_t first = text.inside(line.first), last = text.inside(line.last), final = line.last == end - 1 ? last : text.inside(end - 1);
    tally->line_chars += line.characters;
    tally->lines += 1 + (bullet_at(text, line.first, first) ? 1u << 8 : 0) + (is_end_mark(last) ? 1u << 16 : 0) +
                    (ends_in_ellipsis(text, line.last, last) ? 1u << 24 : 0);
    tally->more_lines += (terminal_ending_at(text, end - 1, final) ? 1 : 0) + (line.characters <= kMostShort ? 1u << 8 : 0);
}

// Counts a line of datatrove.
__device__ inline void count_dt_line(const QualityText &text, const QualityLine &line, QualityTally *tally) {
    tally->more_lines += 1u << 24;
    if (line.first == kNowhere) return;
    tally->dt += (dt_bullet_at(text, line.first, text.inside(line.first)) ? 1 : 0) +
                 (ends_in_dots(text, line.last, text.inside(line.last)) ? 1u << 8 : 0);
}

// Both kinds of lines.
struct QualityLines {
    QualityLine line, dt;

    // Counts the lines that end in the 32 bytes from `start` on. `end_of_text` is the bit of the end of the text, or 0.
    __device__ void count(const QualityText &text, uint32_t start, const QualityMasks &masks, uint32_t end_of_text,
                          QualityTally *tally) {
        count_lines(text, start, masks, masks.newlines | end_of_text, tally);
        count_dt_lines(text, start, masks, masks.line_ends | end_of_text, tally);
    }

private:
    // Counts the lines of Curator. The bits of `breaks` are the ends of lines.
    __device__ void count_lines(const QualityText &text, uint32_t start, const QualityMasks &masks, uint32_t breaks,
                                QualityTally *tally) {
        if (breaks == 0) return line.extend(start, masks, kWholeWarp);
        if (breaks >> lane_id() & 1) count_line(text, line_before(start, masks, breaks, line), start + place(), tally);
        continue_line(start, masks, breaks, &line);
    }

    // Counts the lines of datatrove. The bits of `breaks` are the ends of lines.
    __device__ void count_dt_lines(const QualityText &text, uint32_t start, const QualityMasks &masks, uint32_t breaks,
                                   QualityTally *tally) {
        if (breaks == 0) return dt.extend(start, masks, kWholeWarp);
        if (breaks >> lane_id() & 1) {
            QualityLine before = line_before(start, masks, breaks, dt);
            // After the last line end, there is a line only if characters follow.
            if (before.characters != 0 || (masks.line_ends >> lane_id() & 1)) count_dt_line(text, before, tally);
        }
        continue_line(start, masks, breaks, &dt);
    }
};

} // namespace millrace
