// lanes.cu: a result that depends on the number of lanes, so a GPU and the CPU differ.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(lanes, 1)
MILLRACE_RESULT(uint32_t, lanes)

MILLRACE_RECORD_WARP(record, params, result, team) {
    result.lanes = team.sum(record.size() > 40 ? 1u : 0u);
}
