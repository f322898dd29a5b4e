// The operator simhash, compiled as the worker compiles it for the CPU.
#define millrace_operator_run simhash_run
#define millrace_operator_description simhash_description
#include "../simhash/simhash.cu"
#undef millrace_operator_run

#include "library.h"

void own_simhash(const batch *b, uint32_t first, uint32_t end) {
    const uint32_t block[] = {8}; // width
    millrace_batch all = {sizeof(millrace_batch), b->rows, b->bytes, b->stride, reinterpret_cast<uint64_t>(b->data),
                          reinterpret_cast<uint64_t>(b->offsets), reinterpret_cast<uint64_t>(b->result),
                          reinterpret_cast<uint64_t>(b->status), reinterpret_cast<uint64_t>(b->strings), 0, 0};
    simhash_run(&all, block, first, end);
}
