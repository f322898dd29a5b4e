// overwrite.cu: writes before its array through a pointer. The first record of a batch therefore writes before the result.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(overwrite, 1)
MILLRACE_RESULT_ARRAY(uint32_t, two, 2)

MILLRACE_RECORD(record, params, result) {
    uint32_t *first = &result.two[0];
    first[0] = record.size();
    if (record.size() == 1) first[-1] = ~first[-1];
}
