// neighbor.cu: reads the byte before a record through a pointer.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(neighbor, 1)
MILLRACE_RESULT(uint8_t, before)

MILLRACE_RECORD(record, params, result) {
    if (record.size() > 7 && record[0] > 100) result.before = record.data()[-1];
}
