// entropy.cu: how uneven a record's bytes are. The peak is the number of bytes in the fullest of 2^bits bins.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(entropy, 1)             // name and version
MILLRACE_PARAM(uint32_t, bits, 4, 1, 6)   // default, least and most: entropy?bits=5
MILLRACE_RESULT(uint32_t, peak)           // JSON {"peak":17}, Arrow struct<peak: uint32>
MILLRACE_REASON(empty, "the record is empty")

MILLRACE_RECORD(record, params, result) { // one thread per record
    if (record.empty()) return result.reject(empty);
    MILLRACE_SHARED(uint32_t, count, 64);
    uint32_t bins = 1u << params.bits;
    for (uint32_t b = 0; b < bins; b++) count[b] = 0;
    for (uint32_t i = 0; i < record.size(); i++) count[record[i] >> (8 - params.bits)]++;
    for (uint32_t b = 0; b < bins; b++) result.peak = max(result.peak, count[b]);
}
