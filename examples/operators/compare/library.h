// The operators' own code for the CPU, and implementations in C++.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A ragged batch with memory for the results of an operator.
typedef struct batch {
    const uint8_t *data;
    const uint32_t *offsets;
    uint8_t *result, *status, *strings;
    uint32_t rows, bytes, stride;
} batch;

// Compute records `first` to `end` - 1 with the code of the operators' sources and default parameters.
void own_entropy(const batch *batch, uint32_t first, uint32_t end);
void own_blake3(const batch *batch, uint32_t first, uint32_t end);
void own_simhash(const batch *batch, uint32_t first, uint32_t end);
void own_redact(const batch *batch, uint32_t first, uint32_t end);

// Set out[i] to the result of record i.
void fast_entropy(const uint8_t *data, const uint32_t *offsets, uint64_t *out, uint32_t first, uint32_t end);
void fast_simhash(const uint8_t *data, const uint32_t *offsets, uint64_t *out, uint32_t first, uint32_t end);
void fast_keywords(const void *automaton, const uint8_t *data, const uint32_t *offsets, uint64_t *out, uint32_t first, uint32_t end);

// Builds the automaton of fast_keywords for `count` words, which are back to back. Word i has sizes[i] bytes, at least
// one. The automaton lives until the process ends.
const void *make_automaton(const uint8_t *words, const uint32_t *sizes, uint32_t count);

#ifdef __cplusplus
}
#endif
