// variable.cu: returns at most 64 bytes of each record as a byte string. The comparison with fixed.cu shows the cost of
// byte strings.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(variable, 1)
MILLRACE_RESULT_BYTES(head, 64, 0, millrace::hex)

MILLRACE_RECORD(record, params, result) {
    uint32_t size = min(record.size(), 64u);
    for (uint32_t i = 0; i < size; i++) result.head.push(record[i]);
}
