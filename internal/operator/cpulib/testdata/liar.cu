// liar.cu: leaves results that its description doesn't permit.
#define MILLRACE_UNCHECKED
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(liar, 1)
MILLRACE_RESULT(uint8_t, size)
MILLRACE_RESULT_BYTES(text, 3, 0)
MILLRACE_REASON(no, "no")

MILLRACE_RECORD(record, params, result) {
    result.size = static_cast<uint8_t>(record.size());
    if (!record.empty() && record[0] == 's') result.internal_code_ = 2;
    if (!record.empty() && record[0] == 't') result.text.resize(4);
}
