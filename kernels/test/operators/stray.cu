// stray.cu: passes and record code that access something outside their bounds, depending on the first byte of a record.
// A pass's mistake fails the batch, and a record's mistake fails that record.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(stray, 1)
MILLRACE_TABLE(table, 16)
MILLRACE_RESULT(uint32_t, size)
MILLRACE_SCRATCH(uint32_t, sizes, 0, 1, 0)

MILLRACE_PASS(measure, 32, millrace::per_records(1), batch, params, scratch, team) {
    uint32_t row = batch.block(), start = batch.start(row), size = batch.start(row + 1) - start;
    if (team.lane() == 0) scratch.sizes[row] = size;
    switch (size == 0 ? 0 : batch[start]) {
    case '0': scratch.sizes[row] += batch[batch.size()]; break;
    case '1': scratch.sizes[row] += static_cast<uint32_t>(batch.load<uint64_t>(batch.size() - 7)); break;
    case '2': scratch.sizes[batch.records()] = 1; break;
    case '3': scratch.sizes.add(0xffffffffffffffffull, 1); break;
    case '4': scratch.sizes[row] += params.table[params.table.size()]; break;
    case '5': scratch.sizes[row] += params.table.load<uint16_t>(params.table.size() - 1); break;
    case '6': scratch.sizes[row] += batch.start(batch.records() + 1); break;
    case '7': scratch.sizes[row] += batch.row_of(batch.size()); break;
    }
}

MILLRACE_RECORD(record, params, result) {
    result.size = record.scratch.sizes[record.row()];
    if (!record.empty() && record[0] == 't') result.size += params.table[16];
    if (!record.empty() && record[0] == 's') result.size += record.scratch.sizes[record.scratch.sizes.size()];
}
