// The bytes of one record, and functions that classify single characters.
//
// One thread calls these functions. They read the batch directly, so kernels call them only at rare places, such as the ends of
// lines.
#pragma once

#include <stdint.h>

#include "math/quality_tables.cuh"

namespace millrace {

static __device__ const QualityTables quality_tables = kQualityTables;

// Reads a byte of the batch through the cache for constant data.
__device__ inline uint32_t byte_at(const uint8_t *from) {
#ifdef __CUDA_ARCH__
    return __ldg(from);
#else
    return *from;
#endif
}

// Record [begin, end) of a batch. Positions count from the start of the batch.
struct QualityText {
    const uint8_t *batch;
    uint32_t begin, end;

    // Returns the byte at a position of the record.
    __device__ uint32_t inside(uint32_t position) const { return byte_at(batch + position); }

    // Returns the byte at a position, or 0 outside of the record. No pattern contains the byte 0.
    __device__ uint32_t at(uint32_t position) const { return position - begin < end - begin ? byte_at(batch + position) : 0; }
};

// Returns the number of bytes of the character that starts with byte `lead`.
__device__ inline uint32_t character_bytes(uint32_t lead) { return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4; }

__device__ inline bool is_continuation(uint32_t byte) { return (byte & 0xc0) == 0x80; }

// Returns the code point of a character's bytes. Bytes after the last one are ignored.
__device__ inline uint32_t code_point(uint32_t b0, uint32_t b1, uint32_t b2, uint32_t b3) {
    if (b0 < 0xc0) return b0;
    if (b0 < 0xe0) return (b0 & 0x1f) << 6 | (b1 & 0x3f);
    if (b0 < 0xf0) return (b0 & 0xf) << 12 | (b1 & 0x3f) << 6 | (b2 & 0x3f);
    return (b0 & 7) << 18 | (b1 & 0x3f) << 12 | (b2 & 0x3f) << 6 | (b3 & 0x3f);
}

// Returns the character that starts at a position.
__device__ inline uint32_t character_at(const QualityText &text, uint32_t position) {
    return code_point(text.at(position), text.at(position + 1), text.at(position + 2), text.at(position + 3));
}

// Returns the character whose last byte is at a position.
__device__ inline uint32_t character_ending_at(const QualityText &text, uint32_t position) {
    for (uint32_t bytes = 1; bytes < 4 && is_continuation(text.at(position)); bytes++) position--;
    return character_at(text, position);
}

// Returns whether str.isspace of Python is true for a code point from U+0080 on.
__device__ inline bool is_wide_space(uint32_t u) {
    if (u < 0x1680) return u == 0x85 || u == 0xa0;
    if (u - 0x2000 < 0x60) return u <= 0x200a || u == 0x2028 || u == 0x2029 || u == 0x202f || u == 0x205f;
    return u == 0x1680 || u == 0x3000;
}

__device__ inline bool is_space(uint32_t u) {
    if (u < 0x80) return u == 0x20 || u - 9 < 5 || u - 0x1c < 4;
    return is_wide_space(u);
}

// Returns whether str.splitlines of Python ends a line at a code point from U+0080 on.
__device__ inline bool is_wide_line_end(uint32_t u) { return u == 0x85 || u == 0x2028 || u == 0x2029; }

__device__ inline bool is_alphabetic(uint32_t u) {
    if (u / 256 >= kAlphabeticBlocks) return false;
    return quality_tables.alphabetic_bits[quality_tables.alphabetic_index[u / 256]][u / 32 % 8] >> u % 32 & 1;
}

// Returns whether a sorted list contains a code point.
template <uint32_t kCount>
__device__ bool in_list(const uint32_t (&list)[kCount], uint32_t u) {
    uint32_t low = 0, high = kCount;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (list[middle] < u) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < kCount && list[low] == u;
}

// The next functions have a parameter for a byte that the caller has already read. Most bytes are ASCII, so the functions rarely
// read more bytes.

// Returns whether the character at a position, which begins with this byte, is a bullet of bullet_lines.
__device__ inline bool bullet_at(const QualityText &text, uint32_t position, uint32_t byte) {
    return byte >= 0x80 && in_list(quality_tables.bullet, character_at(text, position));
}

// Returns whether the character is a bullet of dt_bullet_lines. The parameters are the same as for bullet_at.
__device__ inline bool dt_bullet_at(const QualityText &text, uint32_t position, uint32_t byte) {
    return byte == '-' || (byte == 0xe2 && text.at(position + 1) == 0x80 && text.at(position + 2) == 0xa2);
}

// Returns whether a line is one of terminal_lines. The line's last character ends at the given position with `byte`.
__device__ inline bool terminal_ending_at(const QualityText &text, uint32_t position, uint32_t byte) {
    if (byte < 0x80) return byte == '.' || byte == '?' || byte == '!';
    return in_list(quality_tables.terminal, character_ending_at(text, position));
}

__device__ inline bool is_end_mark(uint32_t u) { return u == '.' || u == '?' || u == '!' || u == '"' || u == '\''; }

// Returns whether three dots end at a position whose byte is a dot.
__device__ inline bool three_dots(const QualityText &text, uint32_t last) {
    return text.at(last - 1) == '.' && text.at(last - 2) == '.';
}

// Returns whether U+2026, the character for three dots, ends at a position whose byte is 0xa6.
__device__ inline bool dots_character(const QualityText &text, uint32_t last) {
    return text.at(last - 1) == 0x80 && text.at(last - 2) == 0xe2;
}

__device__ inline bool ends_in_dots(const QualityText &text, uint32_t last, uint32_t byte) {
    return byte == '.' ? three_dots(text, last) : byte == 0xa6 && dots_character(text, last);
}

// Returns the number of characters between the brackets of a mark that ends at a position, or 0 if no dots are there.
__device__ inline uint32_t dots_before(const QualityText &text, uint32_t last) {
    uint32_t byte = text.at(last - 1);
    return !ends_in_dots(text, last - 1, byte) ? 0 : byte == '.' ? 3 : 1;
}

// Returns the number of characters of the ellipsis mark that ends at a position with this byte, or 0. The marks are
// "...", "[...]", "(...)", U+2026 alone or in square brackets, and "-" with U+00BB.
__device__ inline uint32_t mark_characters(const QualityText &text, uint32_t last, uint32_t byte) {
    switch (byte) {
    case '.': return three_dots(text, last) ? 3 : 0;
    case 0xa6: return dots_character(text, last) ? 1 : 0;
    case 0xbb: return text.at(last - 1) == 0xc2 && text.at(last - 2) == '-' ? 2 : 0;
    case ')': return dots_before(text, last) == 3 && text.at(last - 4) == '(' ? 5 : 0;
    case ']': {
        uint32_t dots = dots_before(text, last);
        return dots != 0 && text.at(last - 4) == '[' ? dots + 2 : 0;
    }
    default: return 0;
    }
}

// Returns whether "read more" ends at a position, ignoring case.
__device__ inline bool read_more(const QualityText &text, uint32_t last) {
    const char *phrase = "erom daer"; // in reverse, because most lines differ at their end
    for (uint32_t i = 0; i < 9; i++) {
        uint32_t byte = text.at(last - i), letter = byte - 'A' < 26 ? byte + 32 : byte;
        if (letter != static_cast<uint8_t>(phrase[i])) return false;
    }
    return true;
}

// Returns whether a line counts in ellipsis_lines. The line's last character that isn't a space ends at `last` with `byte`.
__device__ inline bool ends_in_ellipsis(const QualityText &text, uint32_t last, uint32_t byte) {
    if (mark_characters(text, last, byte) != 0) return true;
    if (byte == '.') return text.at(last - 1) == '.' && read_more(text, last - 2);
    return (byte | 0x20) == 'e' && read_more(text, last);
}

} // namespace millrace
