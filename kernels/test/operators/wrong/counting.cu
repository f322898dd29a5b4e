// counting.cu: counts the records of all batches in a variable that outlives the batches.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(counting, 1)
MILLRACE_RESULT(uint32_t, number)

static __device__ uint32_t millrace_test_count;

MILLRACE_RECORD(record, params, result) {
    result.number = ++millrace_test_count;
}
