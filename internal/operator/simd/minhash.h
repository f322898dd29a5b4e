// The inner loops of the operator minhash, in one function per instruction set.
#ifndef MILLRACE_SIMD_MINHASH_H
#define MILLRACE_SIMD_MINHASH_H

#include <stddef.h>
#include <stdint.h>

// Writes the signature of the shingles that start in row[low..high) to `record`. The signature has `hashes` numbers, which are
// UINT32_MAX if there are no shingles. `size` is the row's length. `a` and `b` are padded to a multiple of 16 numbers. `scratch` has
// one number for each byte of row[low..high). The processor must support the instruction set.
void mr_minhash_avx2(uint8_t *record, const uint8_t *row, size_t size, size_t low, size_t high, uint32_t k, uint32_t hashes,
                     const uint32_t *a, const uint32_t *b, uint32_t *scratch);
void mr_minhash_avx512(uint8_t *record, const uint8_t *row, size_t size, size_t low, size_t high, uint32_t k, uint32_t hashes,
                       const uint32_t *a, const uint32_t *b, uint32_t *scratch);

// Return whether the processor and the operating system support an instruction set.
int mr_has_avx2(void);
int mr_has_avx512(void);

#endif
