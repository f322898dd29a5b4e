// leftover.cu: a byte string whose last byte is never set.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(leftover, 1)
MILLRACE_RESULT_BYTES(text, 2, 0)

MILLRACE_RECORD(record, params, result) {
    result.text.resize(2);
    result.text[0] = static_cast<uint8_t>(record.size());
}
