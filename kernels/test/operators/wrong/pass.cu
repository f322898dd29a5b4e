// pass.cu: a pass reads the byte after each record, and thus a byte after the batch.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(pass, 1)
MILLRACE_RESULT(uint32_t, next)
MILLRACE_SCRATCH(uint32_t, next, 0, 1, 0)

MILLRACE_PASS(look, 32, millrace::per_records(1), batch, params, scratch, team) {
    if (team.lane() == 0 && batch.start(batch.block() + 1) > batch.start(batch.block())) {
        scratch.next[batch.block()] = batch[batch.start(batch.block() + 1)];
    }
}

MILLRACE_RECORD(record, params, result) { result.next = record.scratch.next[record.row()]; }
