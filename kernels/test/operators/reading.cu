// reading.cu: every way to read a record, in orders for which a window isn't designed. reading_warp.cu includes it for
// one warp per record, in which each lane reads the whole record.
#include <millrace/operator.cuh>

#ifdef READING_WARP
MILLRACE_OPERATOR(reading_warp, 1)
#else
MILLRACE_OPERATOR(reading, 1)
#endif
MILLRACE_RESULT(uint64_t, forward)
MILLRACE_RESULT(uint64_t, backward)
MILLRACE_RESULT(uint64_t, jumps)
MILLRACE_RESULT(uint64_t, loads)
MILLRACE_RESULT(uint64_t, signs)

#ifdef READING_WARP
MILLRACE_RECORD_WARP(record, params, result, team) {
    uint64_t sums[2];
#else
MILLRACE_RECORD(record, params, result) {
    MILLRACE_SHARED(uint64_t, sums, 2);
#endif
    uint32_t size = record.size(), some = min(size, 5000u);
    sums[0] = sums[1] = 0;
    for (uint32_t i = 0; i < size; i++) result.forward = 31 * result.forward + record[i];
    for (uint32_t i = size; i > 0; i--) result.backward = 31 * result.backward + record[i - 1];
    for (uint32_t i = 0, at = 0; i < some; i++) {
        at = (at + 7919) % size;
        result.jumps = 31 * result.jumps + record[at];
    }
    for (uint32_t i = 0; i < some; i++) {
        uint64_t sum = record.load<uint8_t>(i);
        if (size - i >= 2) sum += record.load<uint16_t>(i) * 3ull, sums[0] += static_cast<uint64_t>(record.load<int16_t>(i));
        if (size - i >= 4) sum += record.load<uint32_t>(i) * 5ull;
        if (size - i >= 8) sum += record.load<uint64_t>(i) * 7ull, sums[1] += static_cast<uint64_t>(record.load<int64_t>(i) >> 3);
        result.loads = 31 * result.loads + sum;
    }
    result.signs = sums[0] ^ sums[1];
}
