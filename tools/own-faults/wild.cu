// wild.cu is an operator that writes through a wild pointer if a record begins with an exclamation mark. tools/gpu-faults runs it.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(wild, 1)
MILLRACE_RESULT(uint32_t, size)

MILLRACE_RECORD(record, params, result) {
    result.size = record.size();
    if (!record.empty() && record[0] == '!') *reinterpret_cast<volatile uint32_t *>(16ull) = 1;
}
