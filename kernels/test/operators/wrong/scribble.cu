// scribble.cu: changes the first byte of its record.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(scribble, 1)
MILLRACE_RESULT(uint32_t, size)

MILLRACE_RECORD(record, params, result) {
    result.size = record.size();
    if (!record.empty()) *const_cast<uint8_t *>(record.data()) ^= 1;
}
