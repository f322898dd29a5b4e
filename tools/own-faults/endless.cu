// endless.cu is an operator that doesn't end if a record begins with an exclamation mark. tools/gpu-faults runs it.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(endless, 1)
MILLRACE_RESULT(uint32_t, size)

MILLRACE_RECORD(record, params, result) {
    result.size = record.size();
    if (!record.empty() && record[0] == '!') {
        for (volatile uint32_t i = 0;; i = i + 1) {
        }
    }
}
