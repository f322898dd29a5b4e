// typo.cu: doesn't compile.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(typo, 1)
MILLRACE_RESULT(uint32_t, size)

MILLRACE_RECORD(record, params, result) {
    result.sise = record.size();
}
