// Characters from U+0080 on: decoding, validation and classes of 32 bytes.
#pragma once

#include "quality_classes.cuh"
#include "quality_text.cuh"
#include "quality_warp.cuh"

namespace millrace {

// The properties of the next 32 bytes that follow from the previous bytes.
struct QualityWide {
    uint32_t continued; // the bytes that must continue a character
    uint32_t spaces;    // the bytes that continue a space
    bool invalid;       // the text is not UTF-8
};

// Returns whether a character's second byte is in the range that its first byte allows: no overlong form, no
// surrogate and nothing above U+10FFFF.
__device__ inline bool good_second(uint32_t first, uint32_t second) {
    uint32_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80, most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= least && second <= most;
}

__device__ inline uint32_t wide_class(uint32_t u) {
    uint32_t bits = kCharacter;
    bits |= is_wide_space(u) ? kSpace : kWordCharacter;
    if (is_alphabetic(u)) bits |= kAlphabetic;
    if (is_wide_line_end(u)) bits |= kLineEnd;
    if (u - 0x27e8 < 2) bits |= kParen;
    return bits;
}

// Returns the class of each lane's byte, as class_of does, if `byte` is at least 0x80. A character's first byte has the character's class,
// and its other bytes have no class. However, all bytes of a space are kSpace. Lanes with inside == false keep `narrow`.
__device__ inline uint32_t wide_classes(QualityWide *wide, uint32_t narrow, uint32_t byte, uint32_t next, bool inside) {
    uint32_t b1 = later(byte, next, 1), b2 = later(byte, next, 2), b3 = later(byte, next, 3), bits = narrow;
    bool high = inside && byte >= 0x80, lead = high && byte >= 0xc2 && byte <= 0xf4;
    if (lead) bits = wide_class(code_point(byte, b1, b2, b3));
    uint32_t bytes = lead ? character_bytes(byte) : 1;
    uint32_t two = ballot(bytes >= 2), three = ballot(bytes >= 3), four = ballot(bytes == 4);
    uint64_t continued = (static_cast<uint64_t>(two) << 31) | (static_cast<uint64_t>(three) << 30) | (static_cast<uint64_t>(four) << 29);
    uint32_t found = ballot(high && byte < 0xc0);
    bool bad = high && (lead ? !good_second(byte, b1) : byte >= 0xc0);
    if (ballot(bad) != 0 || (static_cast<uint32_t>(continued >> 32) | wide->continued) != found) wide->invalid = true;
    wide->continued = static_cast<uint32_t>(continued);

    uint32_t space = ballot(lead && (bits & kSpace) != 0);
    uint64_t spaces = (static_cast<uint64_t>(space) << 31) | (static_cast<uint64_t>(space & three) << 30);
    if ((static_cast<uint32_t>(spaces >> 32) | wide->spaces) >> lane_id() & 1) bits |= kSpace;
    wide->spaces = static_cast<uint32_t>(spaces);
    return bits;
}

} // namespace millrace
