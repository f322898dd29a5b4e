// The operator entropy, compiled as the worker compiles it for the CPU.
#define millrace_operator_run entropy_run
#define millrace_operator_description entropy_description
#include "../entropy/entropy.cu"
#undef millrace_operator_run

#include "library.h"

void own_entropy(const batch *b, uint32_t first, uint32_t end) {
    const uint32_t block[] = {4}; // bits
    millrace_batch all = {sizeof(millrace_batch), b->rows, b->bytes, b->stride, reinterpret_cast<uint64_t>(b->data),
                          reinterpret_cast<uint64_t>(b->offsets), reinterpret_cast<uint64_t>(b->result),
                          reinterpret_cast<uint64_t>(b->status), reinterpret_cast<uint64_t>(b->strings), 0, 0};
    entropy_run(&all, block, first, end);
}
