// spread.cu: one warp per record, with every function of a team. spread_block.cu includes it for one block per record.
#include <millrace/operator.cuh>

#ifdef SPREAD_BLOCK
MILLRACE_OPERATOR(spread_block, 1)
#else
MILLRACE_OPERATOR(spread, 1)
#endif
MILLRACE_RESULT(uint64_t, sum)
MILLRACE_RESULT(int32_t, least)
MILLRACE_RESULT(uint8_t, most)
MILLRACE_RESULT(uint8_t, any_zero)
MILLRACE_RESULT(uint8_t, all_letters)
MILLRACE_RESULT(uint32_t, first)
MILLRACE_RESULT_ARRAY(uint32_t, bins, 16)
MILLRACE_RESULT_BYTES(letters, 0, 1)
MILLRACE_REASON(odd, "the record contains a byte 255")

MILLRACE_DEVICE bool is_letter(uint8_t byte) { return byte >= 'a' && byte <= 'z'; }

#ifdef SPREAD_BLOCK
MILLRACE_RECORD_BLOCK(96, record, params, result, team)
#else
MILLRACE_RECORD_WARP(record, params, result, team)
#endif
{
    MILLRACE_SHARED(uint32_t, seen, 16);
    for (uint32_t b = team.lane(); b < 16; b += team.lanes()) seen[b] = 0;
    team.sync();

    uint64_t sum = 0;
    int32_t least = 1000;
    uint8_t most = 0;
    bool any_zero = false, all_letters = true, odd_byte = false;
    uint32_t letters = 0;
    result.letters.resize(record.size());
    for (uint32_t from = 0; from < record.size(); from += team.lanes()) { // lanes have equal numbers of iterations
        uint32_t i = from + team.lane();
        bool inside = i < record.size();
        uint8_t byte = inside ? record[i] : 0;
        bool letter = inside && is_letter(byte);
        uint32_t at = letters + team.before<uint32_t>(letter);
        if (letter) result.letters[at] = byte;
        letters += team.sum<uint32_t>(letter);
        if (!inside) continue;
        sum += byte;
        least = min(least, static_cast<int32_t>(byte) - 100);
        most = static_cast<uint8_t>(max(most, byte));
        any_zero = any_zero || byte == 0;
        all_letters = all_letters && letter;
        odd_byte = odd_byte || byte == 255;
    }
    result.letters.resize(letters);
    for (uint32_t b = team.lane(); b < 16; b += team.lanes()) { // each lane counts its own bins
        for (uint32_t i = 0; i < record.size(); i++) seen[b] += record[i] % 16 == b;
    }
    team.sync();
    for (uint32_t b = team.lane(); b < 16; b += team.lanes()) result.bins[b] = seen[15 - b];
    result.sum = team.sum(sum);
    result.least = team.min(least);
    result.most = team.max(most);
    result.any_zero = team.any(any_zero);
    result.all_letters = team.all(all_letters);
    result.first = team.first(record.empty() ? 0u : record[0] + team.lane());
    if (odd_byte) result.reject(odd); // only in the lanes that saw it, but the record is rejected
}
