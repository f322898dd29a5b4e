// Shingles: k consecutive characters of a row.
//
// A character starts at a row's first byte and at every byte that is not 10xxxxxx, valid UTF-8 or not. A row of fewer
// than k characters is one shingle; an empty one has none.
#pragma once

#include "both.cuh"

namespace millrace {

// Whether a byte starts a character wherever it stands.
MILLRACE_BOTH bool starts_character(uint8_t byte) { return (byte & 0xc0) != 0x80; }

// A bit for each of the four bytes of a word that starts a character: bits 7, 15, 23 and 31.
MILLRACE_BOTH uint32_t character_starts(uint32_t word) { return (~word | word << 1) & 0x80808080u; }

// There is no such character.
constexpr uint32_t kNoCharacter = 0xffffffffu;

// The shingle that starts with character `character` ends at the byte that this returns, or there is none
// (kNoCharacter). start(j) is the position of character j, counted on through the batch, or kNoCharacter; row_end is
// where the row ends, and first says whether the character is the row's first.
template <class Start>
MILLRACE_BOTH uint32_t shingle_end(Start start, uint32_t character, uint32_t k, uint32_t row_end, bool first) {
    uint32_t last = start(character + k - 1);
    if (last >= row_end) return first ? row_end : kNoCharacter;
    uint32_t next = start(character + k);
    return next < row_end ? next : row_end;
}

} // namespace millrace
