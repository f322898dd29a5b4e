// kinds.cu: every kind of parameter and of result field, with alignment gaps between them.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(kinds, 7)
MILLRACE_PARAM(uint8_t, a, 200, 0, 255)
MILLRACE_PARAM(int16_t, b, -300, -32768, 32767, millrace::shown)
MILLRACE_PARAM(uint32_t, n, 3, 1, 9)
MILLRACE_PARAM(double, scale, 0.375, -1e300, 1e300)
MILLRACE_PARAM(int64_t, c, -1, -9223372036854775807, 9223372036854775807)
MILLRACE_PARAM(float, f, -2.5, -10, 10)
MILLRACE_PARAM(uint64_t, d, 18446744073709551615u, 1, 18446744073709551615u)
MILLRACE_PARAM_BOOL(loud, true, millrace::shown)
MILLRACE_REASON(first_is_x, "the first byte is x")
MILLRACE_RESULT(uint8_t, small)
MILLRACE_RESULT(double, scaled)
MILLRACE_RESULT(int8_t, negative)
MILLRACE_RESULT_ARRAY(uint16_t, pairs, 3)
MILLRACE_RESULT_BYTES(upper, 2, 1)
MILLRACE_RESULT_ARRAY_BY(int32_t, sums, n)
MILLRACE_RESULT(uint64_t, total, millrace::hex)
MILLRACE_REASON(first_is_y, "the first byte is y")
MILLRACE_RESULT_BYTES(digits, 10, 0, millrace::hex)
MILLRACE_RESULT(float, half)
MILLRACE_RESULT_ARRAY(uint8_t, head, 5)

MILLRACE_RECORD(record, params, result) {
    result.half = static_cast<float>(record.size()) / 2;
    result.small = static_cast<uint8_t>(record.size() + params.a);
    result.scaled = record.size() * params.scale;
    result.negative = static_cast<int8_t>(params.b / 100);
    result.total = params.d;
    for (uint32_t i = 0; i < record.size(); i++) {
        uint8_t byte = record[i];
        if (i == 0 && byte == 'x') return result.reject(first_is_x);
        if (i == 0 && byte == 'y') return result.reject(first_is_y);
        if (i == 1 && byte == 'z') return result.fail();
        result.total += byte;
        result.upper.push(byte >= 'a' && byte <= 'z' ? byte - 32 : byte);
        result.sums[i % params.n] += byte + static_cast<int32_t>(params.c);
        if (i < 5) result.head[i] = byte;
        if (i < 3) result.pairs[i] = static_cast<uint16_t>(byte << 8 | i);
    }
    if (params.loud) result.upper.push('!');
    for (uint32_t n = record.size(); n > 0; n /= 10) result.digits.push('0' + n % 10);
    if (params.f < 0) result.upper.push('-');
}
