// fixed.cu: returns 64 bytes of each record as an array. The comparison with variable.cu shows the cost of byte
// strings.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(fixed, 1)
MILLRACE_RESULT_ARRAY(uint8_t, head, 64, millrace::hex)

MILLRACE_RECORD(record, params, result) {
    uint32_t size = min(record.size(), 64u);
    for (uint32_t i = 0; i < size; i++) result.head[i] = record[i];
}
