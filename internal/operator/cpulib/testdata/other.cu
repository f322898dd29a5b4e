// other.cu: declares an operator with another name than that of its file.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(another, 1)
MILLRACE_RESULT(uint32_t, size)

MILLRACE_RECORD(record, params, result) { result.size = record.size(); }
