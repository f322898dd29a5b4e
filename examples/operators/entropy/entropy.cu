// entropy.cu: how uneven a record's bytes are. The peak is the number of bytes in the fullest of 2^bits bins.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(entropy, 1)             // name and version
MILLRACE_PARAM(uint32_t, bits, 4, 1, 6)   // default, least and most: entropy?bits=5
MILLRACE_RESULT(uint32_t, peak)           // JSON {"peak":17}, Arrow struct<peak: uint32>
MILLRACE_REASON(empty, "the record is empty")

MILLRACE_RECORD(record, params, result) { // one thread per record
    if (record.empty()) return result.reject(empty);
    uint32_t count[64] = {};
    for (uint32_t i = 0; i < record.size(); i++) count[record[i] >> (8 - params.bits)]++;
    for (uint32_t c : count) result.peak = max(result.peak, c);
}
