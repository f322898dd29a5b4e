// The classes of a byte below 0x80, as bits of one word. Characters from U+0080 on get the same bits (quality_wide.cuh).
//
// The classes that are only counted are at distances of 8 bits, so that one addition counts four of them
// (quality_tally.cuh).
#pragma once

#include <stdint.h>

namespace millrace {

constexpr uint32_t kAlnum = 1u << 0, kDigit = 1u << 8, kWhite = 1u << 16, kParen = 1u << 24;
constexpr uint32_t kCharacter = 1u << 1, kWordCharacter = 1u << 9, kNewline = 1u << 17;
constexpr uint32_t kSpace = 1u << 2, kAlphabetic = 1u << 3, kHash = 1u << 4, kUrl = 1u << 5, kHex = 1u << 6, kLineEnd = 1u << 7;

struct QualityClasses {
    uint32_t of[128];
};

constexpr bool one_of(uint32_t byte, const char *list) {
    for (const char *c = list; *c != 0; c++) {
        if (static_cast<uint8_t>(*c) == byte) return true;
    }
    return false;
}

constexpr uint32_t class_of(uint32_t b) {
    bool digit = b - '0' < 10, letter = (b | 0x20) - 'a' < 26, space = b == ' ' || b - 9 < 5 || b - 0x1c < 4;
    uint32_t bits = kCharacter | (space ? kSpace : kWordCharacter);
    if (digit) bits |= kDigit;
    if (letter) bits |= kAlphabetic;
    if (digit || letter || one_of(b, "\n?!,.")) bits |= kAlnum;
    if (one_of(b, "\b\t\n\r ")) bits |= kWhite;
    if (one_of(b, "()[]{}")) bits |= kParen;
    if (b == '\n') bits |= kNewline;
    if (b == '#') bits |= kHash;
    if (digit || letter || one_of(b, "$-_@.&+/:=?#~!*(),")) bits |= kUrl;
    if (digit || (b | 0x20) - 'a' < 6) bits |= kHex;
    if (b - 0xa < 4 || b - 0x1c < 3) bits |= kLineEnd;
    return bits;
}

constexpr QualityClasses make_quality_classes() {
    QualityClasses classes{};
    for (uint32_t b = 0; b < 128; b++) classes.of[b] = class_of(b);
    return classes;
}

static __device__ const QualityClasses quality_classes = make_quality_classes();

} // namespace millrace
