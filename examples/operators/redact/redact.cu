// redact.cu: masks long numbers in a record, such as card numbers.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(redact, 1)
MILLRACE_PARAM(uint32_t, digits, 12, 1, 64)  // numbers with at least this many digits are masked
MILLRACE_PARAM(uint32_t, keep, 4, 0, 64)     // this many digits at the end of a number stay readable
MILLRACE_RESULT(uint32_t, masked)            // how many numbers are masked
MILLRACE_RESULT_BYTES(text, 0, 1)            // the record; it keeps its length

MILLRACE_RECORD(record, params, result) {
    auto digit = [&](uint32_t i) { return i < record.size() && record[i] >= '0' && record[i] <= '9'; };
    for (uint32_t i = 0; i < record.size();) {
        uint32_t end = i, left = 0;  // a number: digits, with single spaces or hyphens between them
        while (digit(end) || (left > 0 && digit(end - 1) && digit(end + 1) && (record[end] == ' ' || record[end] == '-')))
            left += digit(end++);
        bool mask = left >= params.digits;
        result.masked += mask;
        for (end = max(end, i + 1); i < end; i++) {
            bool hidden = mask && digit(i) && left-- > params.keep;
            result.text.push(hidden ? '*' : record[i]);
        }
    }
}
