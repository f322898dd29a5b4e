// MinHash for x86-64 processors. The compiler may use AVX only in the functions for AVX, so the same program runs on processors
// without AVX.
#include "minhash.h"

#include <immintrin.h>

#include "text_amd64.h"

enum { MAX_HASHES = 1024 };

// Returns the words that start at `text` and at the 7 bytes after it. It loads 16 bytes.
static inline __attribute__((always_inline, target("avx2"))) __m256i eight_words(const uint8_t *text) {
    const __m256i places = _mm256_setr_epi8(0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6, 4, 5, 6, 7, 5, 6, 7, 8, 6, 7, 8, 9, 7, 8, 9, 10);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)text)), places);
}

#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2")))
#define LANES 8
#define GROUP 4
#define LEAST(x, y) (VECTOR) _mm256_min_epu32((__m256i)(x), (__m256i)(y))
#define WORDS(text) (VECTOR) eight_words(text)
#include "lanes_amd64.h"

#define NAME(x) x##_avx512
#define TARGET __attribute__((target("avx512f")))
#define LANES 16
#define GROUP 8
#define LEAST(x, y) (VECTOR) _mm512_min_epu32((__m512i)(x), (__m512i)(y))
#define WORDS(text) (VECTOR) _mm512_inserti64x4(_mm512_castsi256_si512(eight_words(text)), eight_words((text) + 8), 1)
#include "lanes_amd64.h"

int mr_has_avx2(void) { return __builtin_cpu_supports("avx2"); }
int mr_has_avx512(void) { return __builtin_cpu_supports("avx512f"); }
