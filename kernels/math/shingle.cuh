// Shingles: k consecutive characters of a row.
//
// A character starts at a row's first byte and at every byte that is not 10xxxxxx, whether or not the row is valid
// UTF-8. A row of fewer than k characters is one shingle. An empty row has no shingle.
//
// A shingle's hash is the maximum of 1 and its MurmurHash3. The seed is `a` of the first permutation (permutation.cuh).
#pragma once

#include "both.cuh"

namespace millrace {

constexpr uint32_t kMostShingleCharacters = 256; // the maximum of k

// Returns whether a byte starts a character regardless of its position.
MILLRACE_BOTH bool starts_character(uint8_t byte) { return (byte & 0xc0) != 0x80; }

// Returns a set bit for each byte of a word that starts a character. The bits are 7, 15, 23 and 31.
MILLRACE_BOTH uint32_t character_starts(uint32_t word) { return (~word | word << 1) & 0x80808080u; }

// Returns the hash of a shingle with the given MurmurHash3.
MILLRACE_BOTH uint32_t shingle_hash(uint32_t murmur3) { return murmur3 == 0 ? 1 : murmur3; }

// The position of a character that doesn't exist.
constexpr uint32_t kNoCharacter = 0xffffffffu;

// Returns the position at which the shingle that starts with character `character` ends, or kNoCharacter if there is no
// such shingle. start(j) returns the position of character j, numbered throughout the batch, or kNoCharacter. row_end
// is the end of the row, and first is true if the character is the row's first.
template <class Start>
MILLRACE_BOTH uint32_t shingle_end(Start start, uint32_t character, uint32_t k, uint32_t row_end, bool first) {
    uint32_t last = start(character + k - 1);
    if (last >= row_end) return first ? row_end : kNoCharacter;
    uint32_t next = start(character + k);
    return next < row_end ? next : row_end;
}

} // namespace millrace
