// tally.cu: passes with every function of scratch memory and of a batch, and two tables. The work is divided by bytes.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(tally, 1)
MILLRACE_PARAM(uint8_t, start, 3, 0, 255)
MILLRACE_TABLE(weights, 256)                    // the weight of a byte is weights[byte % weights.size()]
MILLRACE_TABLE(swaps, 64)
MILLRACE_RESULT(uint64_t, weight)
MILLRACE_RESULT(uint32_t, letters)
MILLRACE_RESULT(uint32_t, seen)                 // bit b: a byte with the low 5 bits b
MILLRACE_RESULT(int32_t, least)                 // minimum (at most 0) and maximum (at least 0) of byte - 128
MILLRACE_RESULT(int64_t, most)
MILLRACE_RESULT(uint32_t, last)                 // position of the last zero byte plus 1
MILLRACE_RESULT_BYTES(swapped, 0, 1)
MILLRACE_REASON(odd, "the record has 77 letters")

MILLRACE_SCRATCH(uint64_t, weight, 0, 1, 0)
MILLRACE_SCRATCH(uint32_t, letters, 0, 2, 0)    // letters[2 * row] and the complement of the first letter's position
MILLRACE_SCRATCH(uint32_t, seen, 0, 1, 0)
MILLRACE_SCRATCH(int32_t, least, 0, 1, 0)
MILLRACE_SCRATCH(int64_t, most, 0, 1, 0)
MILLRACE_SCRATCH(uint32_t, last, 1, 1, 0)
MILLRACE_SCRATCH(uint8_t, swapped, 3, 0, 1)
MILLRACE_SCRATCH(uint32_t, doubled, 256, 0, 0)  // two times the weights

MILLRACE_DEVICE bool is_letter(uint8_t byte) { return byte >= 'a' && byte <= 'z'; }

MILLRACE_PASS(prepare, 32, millrace::blocks(3), batch, params, scratch, team) {
    for (uint32_t i = batch.block() * team.lanes() + team.lane(); i < 256; i += batch.blocks() * team.lanes()) {
        scratch.doubled[i] = 2 * params.weights[i % params.weights.size()];
    }
    if (team.lane() == 0) scratch.letters.exchange(0, 0);
}

// One block processes 100 bytes, and the lanes divide them.
MILLRACE_PASS(bytes, 64, millrace::per_bytes(100), batch, params, scratch, team) {
    MILLRACE_SHARED(uint32_t, rows, 2);
    uint32_t from = batch.block() * 100, end = min(from + 100, batch.size());
    if (team.lane() == 0) rows[0] = batch.row_of(from), rows[1] = batch.row_of(end - 1) + 1;
    team.sync();
    for (uint32_t i = from + team.lane(); i < end; i += team.lanes()) {
        uint32_t row = batch.row_of(i, rows[0], rows[1]);
        uint8_t byte = batch[i];
        if (batch.load<uint8_t>(i) != byte || i < batch.start(row) || i >= batch.start(row + 1)) scratch.least[batch.records()] = 1; // fails
        scratch.weight.add(row, scratch.doubled[byte]);
        if (is_letter(byte)) scratch.letters.add(2 * row, 1);
        scratch.seen.set_bits(row, 1u << byte % 32);
        scratch.least.min(row, static_cast<int32_t>(byte) - 128);
        scratch.most.max(row, static_cast<int64_t>(byte) - 128);
        if (byte == 0) scratch.last.max(row + 1, i - batch.start(row) + 1);
        scratch.swapped[i + 3] = byte < params.swaps.size() ? params.swaps[byte] : byte;
    }
}

// Halves the weight of a record and adds the parameter, with one thread per record.
MILLRACE_PASS(records, 96, millrace::per_records(96), batch, params, scratch, team) {
    for (uint32_t i = team.lane(); i < 96; i += team.lanes()) {
        uint32_t row = batch.block() * 96 + i;
        if (row < batch.records()) scratch.weight[row] = scratch.weight[row] / 2 + params.start;
    }
}

MILLRACE_RECORD_WARP(record, params, result, team) {
    auto &scratch = record.scratch;
    uint32_t row = record.row();
    result.swapped.resize(record.size());
    for (uint32_t i = team.lane(); i < record.size(); i += team.lanes()) result.swapped[i] = scratch.swapped[record.start() + i + 3];
    result.weight = scratch.weight[row];
    result.letters = scratch.letters[2 * row];
    result.seen = scratch.seen[row];
    result.least = scratch.least[row];
    result.most = scratch.most[row];
    result.last = scratch.last[row + 1];
    if (result.letters == 77) result.reject(odd);
}
