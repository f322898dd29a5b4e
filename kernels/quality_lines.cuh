// Lines of 32 bytes of text: Curator's lines, between newlines, and datatrove's, as str.splitlines of Python has them.
#pragma once

#include "quality_words.cuh"

namespace millrace {

constexpr uint32_t kNowhere = 0xffffffffu; // no position
constexpr uint32_t kMostShort = 30, kLeastLong = 200; // characters of short_lines and long_lines

// The beginning of the line that continues in the next 32 bytes.
struct QualityLine {
    uint32_t characters;
    uint32_t first, last; // positions of the first and the last byte that is no space, or kNowhere

    // Adds the bytes of `range` to the beginning.
    __device__ void extend(uint32_t start, const QualityMasks &masks, uint32_t range) {
        uint32_t letters = ~masks.spaces & range;
        characters += count_bits(masks.characters & range);
        if (letters == 0) return;
        if (first == kNowhere) first = start + lowest_bit(letters);
        last = start + highest_bit(letters);
    }
};

// Returns the line that ends before this lane's byte, if the bits of `breaks` end lines.
__device__ inline QualityLine line_before(uint32_t start, const QualityMasks &masks, uint32_t breaks, const QualityLine &begun) {
    uint32_t below = bits_below(lane_id()), earlier_breaks = breaks & below;
    QualityLine line = begun;
    if (earlier_breaks != 0) line = {0, kNowhere, kNowhere};
    line.extend(start, masks, below & bits_after(earlier_breaks));
    return line;
}

// Moves to the line that continues after the 32 bytes.
__device__ inline void continue_line(uint32_t start, const QualityMasks &masks, uint32_t breaks, QualityLine *line) {
    if (breaks != 0) *line = {0, kNowhere, kNowhere};
    line->extend(start, masks, bits_after(breaks));
}

// Counts a line of Curator, which ends before `end`.
__device__ inline void count_line(const QualityText &text, const QualityLine &line, uint32_t end, QualityTally *tally) {
    if (line.characters >= kLeastLong) tally->more_lines += 1u << 16;
    if (line.first == kNowhere) return;
    uint32_t first = text.at(line.first), last = text.at(line.last), final = line.last == end - 1 ? last : text.at(end - 1);
    tally->line_chars += line.characters;
    tally->lines += 1 + (bullet_at(text, line.first, first) ? 1u << 8 : 0) + (is_end_mark(last) ? 1u << 16 : 0) +
                    (ends_in_ellipsis(text, line.last, last) ? 1u << 24 : 0);
    tally->more_lines += (terminal_ending_at(text, end - 1, final) ? 1 : 0) + (line.characters <= kMostShort ? 1u << 8 : 0);
}

// Counts a line of datatrove.
__device__ inline void count_dt_line(const QualityText &text, const QualityLine &line, QualityTally *tally) {
    tally->more_lines += 1u << 24;
    if (line.first == kNowhere) return;
    tally->dt += (dt_bullet_at(text, line.first, text.at(line.first)) ? 1 : 0) +
                 (ends_in_dots(text, line.last, text.at(line.last)) ? 1u << 8 : 0);
}

// Both kinds of lines. They are the same up to the first line end that isn't a newline.
struct QualityLines {
    QualityLine line, dt;
    bool apart; // whether dt is valid; otherwise it is the same as line

    // Counts the lines that end in the 32 bytes from `start` on. `end_of_text` is the bit of the end of the text, or 0.
    __device__ void count(const QualityText &text, uint32_t start, const QualityMasks &masks, uint32_t end_of_text,
                          QualityTally *tally) {
        if (!apart && masks.line_ends != masks.newlines) dt = line, apart = true;
        uint32_t breaks = masks.newlines | end_of_text, dt_breaks = masks.line_ends | end_of_text, lane = lane_id();
        if ((breaks | dt_breaks) == 0) {
            line.extend(start, masks, kWholeWarp);
            if (apart) dt.extend(start, masks, kWholeWarp);
            return;
        }
        QualityLine before = line_before(start, masks, breaks, line), dt_before = before;
        if (apart) dt_before = line_before(start, masks, dt_breaks, dt);
        if (breaks >> lane & 1) count_line(text, before, start + lane, tally);
        // After the last line end, there is a line only if characters follow.
        bool dt_line = (masks.line_ends >> lane & 1) != 0 || dt_before.characters != 0;
        if ((dt_breaks >> lane & 1) && dt_line) count_dt_line(text, dt_before, tally);
        continue_line(start, masks, breaks, &line);
        if (apart) continue_line(start, masks, dt_breaks, &dt);
    }
};

} // namespace millrace
