// Characters and hashes of single shingles, for every instruction set.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool continues(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Returns the first position from `i` on where a character starts, or the row's end.
static inline size_t character_start(const uint8_t *row, size_t size, size_t i) {
    while (i > 0 && i < size && continues(row[i])) i++;
    return i;
}

// Returns the first position from `i` on with a byte that continues a character, or the row's end.
static inline size_t continuation(const uint8_t *row, size_t size, size_t i) {
    for (; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, row + i, 8);
        word &= ~(word << 1) & 0x8080808080808080; // bit 7 of bytes whose bits 7 and 6 are 1 and 0
        if (word != 0) return i + (size_t)__builtin_ctzll(word) / 8;
    }
    while (i < size && !continues(row[i])) i++;
    return i;
}

#define ROTATE(x, by) ((x) << (by) | (x) >> (32 - (by)))

// These macros are the steps of MurmurHash3_x86_32, for a number or for a vector.
#define SCRAMBLE(word) (ROTATE((word) * 0xCC9E2D51u, 15) * 0x1B873593u)
#define FINISH(hash)             \
    do {                         \
        (hash) ^= (hash) >> 16;  \
        (hash) *= 0x85EBCA6Bu;   \
        (hash) ^= (hash) >> 13;  \
        (hash) *= 0xC2B2AE35u;   \
        (hash) ^= (hash) >> 16;  \
    } while (0)

// Returns the hash of one shingle, at least 1.
static inline uint32_t shingle_hash(const uint8_t *data, size_t size, uint32_t seed) {
    uint32_t hash = seed, word;
    size_t rest = size;
    for (; rest >= 4; rest -= 4, data += 4) {
        memcpy(&word, data, 4);
        hash ^= SCRAMBLE(word);
        hash = ROTATE(hash, 13) * 5 + 0xE6546B64u;
    }
    word = 0;
    for (size_t i = 0; i < rest; i++) word |= (uint32_t)data[i] << 8 * i;
    hash ^= SCRAMBLE(word); // SCRAMBLE(0) is 0
    hash ^= (uint32_t)size;
    FINISH(hash);
    return hash > 0 ? hash : 1;
}
