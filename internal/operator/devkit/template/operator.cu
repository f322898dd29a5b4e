// NAME.cu: the length of the longest run of one byte in a record.
//
//   worker operator test NAME.cu     compiles the operator for the CPU and tests it
//   worker operator build NAME.cu    makes NAME.cpu.so
//
// millrace/operator.cuh describes everything that an operator can use.
#include <millrace/operator.cuh>

// The operator's name, which is also the file's name, and its version. Raise the version when results or parameters
// change.
MILLRACE_OPERATOR(NAME, 1)

// A parameter: type, name, default, minimum, maximum. A user sets it with NAME?value=10.
MILLRACE_PARAM(uint32_t, value, 32, 0, 255)

// A field of the result: {"longest":3} in JSON.
MILLRACE_RESULT(uint32_t, longest)

// A reason for rejecting a record. Only that record becomes a dead letter.
MILLRACE_REASON(empty, "the record is empty")

// The code for one record, in one thread. It must depend on the record and the parameters alone.
MILLRACE_RECORD(record, params, result) {
    if (record.empty()) return result.reject(empty);
    uint32_t run = 0;
    for (uint32_t i = 0; i < record.size(); i++) {
        run = record[i] == params.value ? run + 1 : 0;
        result.longest = max(result.longest, run);
    }
}
