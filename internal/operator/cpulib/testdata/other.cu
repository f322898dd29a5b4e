// other.cu: declares an operator whose name differs from the file's name.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(another, 1)
MILLRACE_RESULT(uint32_t, size)

MILLRACE_RECORD(record, params, result) { result.size = record.size(); }
