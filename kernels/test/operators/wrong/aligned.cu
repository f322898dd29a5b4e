// aligned.cu: expects a record to begin at an even address.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(aligned, 1)
MILLRACE_RESULT(uint32_t, odd)

MILLRACE_RECORD(record, params, result) {
    result.odd = reinterpret_cast<uint64_t>(record.data()) % 2;
}
