// outside.cu is an operator that reads outside a record that begins with an exclamation mark. After a second exclamation mark, it reads
// through a pointer without a check. tools/gpu-faults runs it.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(outside, 1)
MILLRACE_RESULT(uint32_t, size)
MILLRACE_RESULT(uint32_t, byte)

MILLRACE_RECORD(record, params, result) {
    result.size = record.size();
    if (record.size() < 2 || record[0] != '!') return;
    if (record[1] == '!') {
        result.byte = *reinterpret_cast<const volatile uint8_t *>(record.data() + (1ull << 40));
    } else {
        result.byte = record[record.size()];
    }
}
