// MinHash for x86-64 processors. The compiler may use AVX only in the functions of that instruction set, so the same program runs on
// processors without it.
#include "minhash.h"

#include <immintrin.h>

#include "text_amd64.h"

enum { MAX_HASHES = 1024 };

#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2")))
#define LANES 8
#define GROUP 4
#define LEAST(x, y) (VECTOR) _mm256_min_epu32((__m256i)(x), (__m256i)(y))
#include "lanes_amd64.h"

#define NAME(x) x##_avx512
#define TARGET __attribute__((target("avx512f")))
#define LANES 16
#define GROUP 8
#define LEAST(x, y) (VECTOR) _mm512_min_epu32((__m512i)(x), (__m512i)(y))
#include "lanes_amd64.h"

int mr_has_avx2(void) { return __builtin_cpu_supports("avx2"); }
int mr_has_avx512(void) { return __builtin_cpu_supports("avx512f"); }
