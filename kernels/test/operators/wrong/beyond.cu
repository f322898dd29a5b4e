// beyond.cu: reads the byte after a record.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(beyond, 1)
MILLRACE_RESULT(uint32_t, sum)

MILLRACE_RECORD(record, params, result) {
    for (uint32_t i = 0; i <= record.size(); i++) result.sum += record[i];
}
