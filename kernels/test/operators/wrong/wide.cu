// wide.cu: has a byte string with a large bound, so that a batch of few records needs much memory.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(wide, 1)
MILLRACE_RESULT_BYTES(text, 8 << 20, 0)

MILLRACE_RECORD(record, params, result) { result.text.push('!'); }
