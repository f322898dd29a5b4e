// MinHash with vectors of LANES numbers. minhash_amd64.c includes this file once per instruction set, with these macros:
//   NAME(x)      x with a suffix for the instruction set
//   TARGET       the attribute that permits its instructions
//   LANES        numbers in a vector
//   GROUP        vectors of permutations whose minima fit in registers, with their a and b
//   LEAST(x, y)  the lesser of each pair of unsigned numbers
//   WORDS(text)  the words of 4 bytes that start at `text` and at the LANES - 1 bytes after it

#define VECTOR NAME(vector)
#define INNER static inline __attribute__((always_inline)) TARGET

typedef uint32_t VECTOR __attribute__((vector_size(4 * LANES)));

INNER VECTOR NAME(load)(const void *from) {
    VECTOR v;
    memcpy(&v, from, sizeof v);
    return v;
}

INNER void NAME(store)(void *to, VECTOR v) { memcpy(to, &v, sizeof v); }

// Stores the hashes of LANES shingles of `size` bytes that start at `text` and at the bytes after it. WORDS loads up to LANES + 8 bytes.
INNER void NAME(hash_block)(const uint8_t *text, size_t size, uint32_t seed, uint32_t *hashes) {
    VECTOR hash = (VECTOR){0} + seed;
    size_t rest = size;
    for (; rest >= 4; rest -= 4, text += 4) {
        hash ^= SCRAMBLE(WORDS(text));
        hash = ROTATE(hash, 13) * 5 + 0xE6546B64u;
    }
    if (rest > 0) hash ^= SCRAMBLE(WORDS(text) & ((1u << 8 * rest) - 1));
    hash ^= (uint32_t)size;
    FINISH(hash);
    hash -= (VECTOR)(hash == 0); // a true comparison has the value -1
    NAME(store)(hashes, hash);
}

// Stores the hashes of the shingles that start in row[low..high), and returns their number.
INNER size_t NAME(hash_shingles)(const uint8_t *row, size_t size, size_t low, size_t high, uint32_t k, uint32_t seed, uint32_t *hashes) {
    size_t start = character_start(row, size, low), end = start, n = 0;
    size_t start_plain = 0, end_plain = 0; // ends of the runs of one-byte characters at start and at end
    if (start >= high) return 0;
    for (uint32_t characters = 0; characters < k; characters++) {
        if (end == size) { // a row with fewer than k characters is one shingle
            if (start == 0) hashes[n++] = shingle_hash(row, size, seed);
            return n;
        }
        end = character_start(row, size, end + 1);
    }
    while (start < high) {
        if (start_plain <= start) start_plain = continuation(row, size, start);
        if (end_plain <= end) end_plain = continuation(row, size, end);
        // While one-byte characters enter and leave, all shingles have the same number of bytes.
        if (start + LANES <= high && start + LANES < start_plain && end + LANES < end_plain && end + LANES + 8 <= size) {
            NAME(hash_block)(row + start, end - start, seed, hashes + n);
            n += LANES;
            start += LANES;
            end += LANES;
            continue;
        }
        hashes[n++] = shingle_hash(row + start, end - start, seed);
        if (end == size) break;
        start = character_start(row, size, start + 1);
        end = character_start(row, size, end + 1);
    }
    return n;
}

// Stores the minima of h*a + b over all hashes h, for `vectors` vectors of permutations. `vectors` is a constant, at most GROUP.
INNER void NAME(minima)(uint32_t *minima, const uint32_t *hashes, size_t n, const uint32_t *a, const uint32_t *b, int vectors) {
    VECTOR factor[GROUP], summand[GROUP], least[GROUP];
    for (int v = 0; v < vectors; v++) {
        factor[v] = NAME(load)(a + v * LANES);
        summand[v] = NAME(load)(b + v * LANES);
        least[v] = (VECTOR){0} - 1;
    }
    for (size_t i = 0; i < n; i++) {
        VECTOR hash = (VECTOR){0} + hashes[i];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) least[v] = LEAST(least[v], hash * factor[v] + summand[v]);
    }
    for (int v = 0; v < vectors; v++) NAME(store)(minima + v * LANES, least[v]);
}

TARGET void NAME(mr_minhash)(uint8_t *record, const uint8_t *row, size_t size, size_t low, size_t high, uint32_t k, uint32_t hashes,
                             const uint32_t *a, const uint32_t *b, uint32_t *scratch) {
    uint32_t signature[MAX_HASHES];
    size_t n = NAME(hash_shingles)(row, size, low, high, k, a[0], scratch);
    uint32_t i = 0;
    for (; i + GROUP * LANES <= hashes; i += GROUP * LANES) NAME(minima)(signature + i, scratch, n, a + i, b + i, GROUP);
    for (; i < hashes; i += LANES) NAME(minima)(signature + i, scratch, n, a + i, b + i, 1);
    memcpy(record, signature, 4 * (size_t)hashes);
}

#undef NAME
#undef TARGET
#undef LANES
#undef GROUP
#undef LEAST
#undef WORDS
#undef VECTOR
#undef INNER
