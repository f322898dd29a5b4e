// The operator blake3, compiled as the worker compiles it for the CPU.
#define millrace_operator_run blake3_run
#define millrace_operator_description blake3_description
#include "../blake3/blake3.cu"
#undef millrace_operator_run

#include "library.h"

void own_blake3(const batch *b, uint32_t first, uint32_t end) {
    const uint32_t block[] = {0}; // no parameters
    millrace_batch all = {sizeof(millrace_batch), b->rows, b->bytes, b->stride, reinterpret_cast<uint64_t>(b->data),
                          reinterpret_cast<uint64_t>(b->offsets), reinterpret_cast<uint64_t>(b->result),
                          reinterpret_cast<uint64_t>(b->status), reinterpret_cast<uint64_t>(b->strings), 0, 0};
    blake3_run(&all, block, first, end);
}
