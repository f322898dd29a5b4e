// The counters of a warp that scans text.
#pragma once

#include "math/quality_fields.cuh"
#include "quality_warp.cuh"

namespace millrace {

// Packed counters. Each lane counts in bytes, with four bytes per word. A lane counts at most kMostTallied times before flush. After
// flush, lane f holds the total of field f. The fields up to kScanFields fit in a warp.
struct QualityTally {
    static constexpr uint32_t kMostTallied = 255; // 32 * 255 fit in 16 bits

    uint32_t plain;      // alnum, digit, white, paren chars
    uint32_t characters; // chars, word chars, newlines
    uint32_t words;      // words, symbol, common, alpha words
    uint32_t lines;      // lines, bullet, end mark, ellipsis lines
    uint32_t more_lines; // terminal, short, long, dt lines
    uint32_t dt;         // dt bullet, dt ellipsis lines; policy, lorem paragraphs
    uint32_t line_chars, longest; // counters of this lane, not packed
    uint32_t total;               // total of field lane_id()

    // Adds a number that is the same in all lanes.
    __device__ void add(QualityField field, uint32_t value) { total += lane_id() == field ? value : 0; }

    // Adds the four sums of the lanes' packed counters.
    __device__ void add_packed(uint32_t packed, QualityField a, QualityField b, QualityField c, QualityField d) {
        uint32_t even = reduce_add(packed & 0x00ff00ff), odd = reduce_add(packed >> 8 & 0x00ff00ff);
        add(a, even & 0xffff), add(b, odd & 0xffff), add(c, even >> 16), add(d, odd >> 16);
    }

    __device__ void flush() {
        add_packed(plain, kAlnumChars, kDigitChars, kWhiteChars, kParenChars);
        add_packed(characters, kChars, kWordChars, kNewlines, kScanFields);
        add_packed(words, kWords, kSymbolWords, kCommonWords, kAlphaWords);
        add_packed(lines, kLines, kBulletLines, kEndmarkLines, kEllipsisLines);
        add_packed(more_lines, kTerminalLines, kShortLines, kLongLines, kDtLines);
        add_packed(dt, kDtBulletLines, kDtEllipsisLines, kPolicyParagraphs, kLoremParagraphs);
        plain = characters = words = lines = more_lines = dt = 0;
    }

    // Completes the totals.
    __device__ void finish() {
        flush();
        add(kLineChars, reduce_add(line_chars));
        add(kLongestWord, reduce_max(longest));
    }
};

} // namespace millrace
