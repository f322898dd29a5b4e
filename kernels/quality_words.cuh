// Words of 32 bytes of text. A word is a sequence of characters between spaces.
#pragma once

#include "quality_tally.cuh"
#include "quality_text.cuh"
#include "quality_warp.cuh"

namespace millrace {

// The classes of 32 bytes. A character's class is at its first byte, but kSpace is at all bytes of a space.
struct QualityMasks {
    uint32_t characters, spaces, alphabetic, hashes, newlines, line_ends;
};

// The beginning of the word that continues in the next 32 bytes.
struct QualityWord {
    uint32_t characters; // 0 if no word continues
    uint32_t hash_runs;
    bool alphabetic, ends_with_hash;
};

// Returns whether a word of `characters` characters, whose last four bytes are in `quad`, is one of the eight common words.
__device__ inline bool is_common_word(uint32_t characters, uint32_t quad) {
    if (characters == 2) {
        uint32_t pair = quad >> 16;
        return pair == ('b' | 'e' << 8) || pair == ('t' | 'o' << 8) || pair == ('o' | 'f' << 8);
    }
    if (characters == 3) {
        uint32_t three = quad >> 8;
        return three == ('t' | 'h' << 8 | 'e' << 16) || three == ('a' | 'n' << 8 | 'd' << 16);
    }
    return characters == 4 && (quad == ('t' | 'h' << 8 | 'a' << 16 | 't' << 24) ||
                               quad == ('h' | 'a' << 8 | 'v' << 16 | 'e' << 24) ||
                               quad == ('w' | 'i' << 8 | 't' << 16 | 'h' << 24));
}

// Returns whether a word of `characters` characters, which ends with byte `last` at a position, is an ellipsis mark.
__device__ inline bool is_mark(const QualityText &text, uint32_t characters, uint32_t last, uint32_t position) {
    if (characters > 5) return false;
    if (last != '.' && last != ')' && last != ']' && last != 0xa6 && last != 0xbb) return false;
    return mark_characters(text, position, last) == characters;
}

// Counts the words that end in the 32 bytes from `start` on. A word ends at the lane of the first space after it. `quad` contains
// the four bytes before the lane's byte.
__device__ inline void count_words(const QualityText &text, uint32_t start, const QualityMasks &masks, uint32_t quad,
                                   QualityWord *word, QualityTally *tally) {
    uint32_t letters = ~masks.spaces;
    uint32_t runs = masks.hashes & ~(masks.hashes >> 1 | (word->ends_with_hash ? kFirstByte : 0)); // bits at which sequences of # begin
    uint32_t ends = masks.spaces & (letters >> 1 | (word->characters != 0 ? kFirstByte : 0));
    if (ends >> lane_id() & 1) {
        uint32_t before = bytes_before(), spaces = masks.spaces & before, range = before & bytes_after(spaces);
        bool whole = spaces != 0; // the word begins in these bytes
        uint32_t characters = count_bits(masks.characters & range) + (whole ? 0 : word->characters);
        uint32_t hash_runs = count_bits(runs & range) + (whole ? 0 : word->hash_runs);
        bool alphabetic = (masks.alphabetic & range) != 0 || (!whole && word->alphabetic);
        bool symbol = 2 * hash_runs > characters || is_mark(text, characters, quad >> 24, start + place() - 1);
        tally->words += 1 + (symbol ? 1u << 8 : 0) + (is_common_word(characters, quad) ? 1u << 16 : 0) + (alphabetic ? 1u << 24 : 0);
        tally->longest = max(tally->longest, characters);
    }
    uint32_t rest = bytes_after(masks.spaces);
    if (masks.spaces != 0) word->characters = word->hash_runs = 0, word->alphabetic = false;
    word->characters += count_bits(masks.characters & rest);
    word->hash_runs += count_bits(runs & rest);
    word->alphabetic = word->alphabetic || (masks.alphabetic & rest) != 0;
    word->ends_with_hash = masks.hashes & 1;
}

} // namespace millrace
