// simhash.cu: 64 bits that are similar for similar records. One warp computes a record.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(simhash, 1)
MILLRACE_PARAM(uint32_t, width, 8, 1, 8)                            // bytes of a shingle
MILLRACE_RESULT(uint64_t, hash, millrace::hex | millrace::bare)     // JSON "9c0e22d1b5a1ff63", Arrow uint64
MILLRACE_REASON(empty, "the record is empty")

// A counter for each of 64 bits. Counter b has its digits at bit b of the planes, with the lowest digit in planes[0].
constexpr uint32_t kPlanes = 32;

// Adds counters that have the given number of digits. Digit p is in more[p * step].
MILLRACE_DEVICE void add(uint64_t *planes, const uint64_t *more, uint32_t step, uint32_t digits) {
    uint64_t carry = 0;
    for (uint32_t p = 0; p < kPlanes; p++) {
        if (p >= digits && carry == 0) return;
        uint64_t a = planes[p], b = p < digits ? more[p * step] : 0;
        planes[p] = a ^ b ^ carry, carry = (a & b) | (carry & (a ^ b));
    }
}

// Returns the hash of a shingle with the finalizer of SplitMix64. Each bit of the hash depends on all bits of the
// shingle.
MILLRACE_DEVICE uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9, x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// Returns 8 bytes of the record, with zeros after its end.
MILLRACE_DEVICE uint64_t word(const millrace::Record &record, uint32_t at) {
    if (record.size() >= 8 && at <= record.size() - 8) return record.load<uint64_t>(at);
    uint64_t bytes = 0;
    for (uint32_t i = at; i < record.size() && i < at + 8; i++) bytes |= static_cast<uint64_t>(record[i]) << 8 * (i - at);
    return bytes;
}

MILLRACE_RECORD_WARP(record, params, result, team) {
    MILLRACE_SHARED(uint64_t, others, 16 * kPlanes);
    if (record.empty()) return result.reject(empty);
    uint32_t width = min(params.width, record.size()), shingles = record.size() - width + 1; // a short record is one shingle
    uint64_t mask = ~0ull >> (64 - 8 * width), planes[kPlanes] = {};
    for (uint32_t from = 8 * team.lane(); from < shingles; from += 8 * team.lanes()) {
        uint64_t low = word(record, from), high = word(record, from + 8), eight[4] = {};
        for (uint32_t s = 0; s < 8; s++) {
            uint64_t shingle = (low >> 8 * s | high << 1 << (63 - 8 * s)) & mask;
            uint64_t bits = from + s < shingles ? mix(shingle + width * 0x9e3779b97f4a7c15) : 0;
            for (uint32_t p = 0; p < 4; p++) {
                uint64_t carry = eight[p] & bits;
                eight[p] ^= bits, bits = carry;
            }
        }
        add(planes, eight, 1, 4);
    }
    uint32_t digits = 32 - __clz(shingles);
    for (uint32_t half = team.lanes() / 2; half > 0; half /= 2) { // the lower half of the lanes adds the upper half's counters
        if (team.lane() >= half && team.lane() < 2 * half) {
            for (uint32_t p = 0; p < digits; p++) others[p * 16 + team.lane() - half] = planes[p];
        }
        team.sync();
        if (team.lane() < half) add(planes, others + team.lane(), 16, digits);
        team.sync();
    }
    uint64_t more = 0, equal = ~0ull; // more: bits that more than half of the shingles have
    for (uint32_t p = kPlanes; p-- > 0;) {
        uint64_t digit = planes[p], half = shingles / 2 >> p & 1 ? ~0ull : 0;
        more |= equal & digit & ~half, equal &= ~(digit ^ half);
    }
    result.hash = more;
}
