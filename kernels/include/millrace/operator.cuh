// operator.cuh: the header of an operator's source file. A complete operator:
//
//     #include <millrace/operator.cuh>
//
//     MILLRACE_OPERATOR(longest_run, 1)                  // name and version
//     MILLRACE_PARAM(uint32_t, value, 32, 0, 255)        // type, name, default, minimum, maximum: longest_run?value=0
//     MILLRACE_RESULT(uint32_t, run)                     // JSON {"run":3}, Arrow struct<run: uint32>
//     MILLRACE_REASON(empty, "the record is empty")
//
//     MILLRACE_RECORD(record, params, result) {          // one thread per record
//         if (record.empty()) return result.reject(empty);
//         uint32_t run = 0;
//         for (uint32_t i = 0; i < record.size(); i++) {
//             run = record[i] == params.value ? run + 1 : 0;
//             result.run = max(result.run, run);
//         }
//     }
//
// The file compiles for the GPU with nvcc or NVRTC, and for the CPU with a C++17 compiler. Both must give the same
// bytes for the same record. A result must depend only on the record and the parameters. It must not depend on other
// records, on results of earlier batches, or on the number of lanes.
//
// Declarations come first, in this order: MILLRACE_OPERATOR, then any of these, then the code.
//
//   MILLRACE_PARAM(type, name, default, least, most [, millrace::shown])
//   MILLRACE_RESULT(type, name [, flags])                  a number
//   MILLRACE_RESULT_ARRAY(type, name, count [, flags])     an array of `count` numbers
//   MILLRACE_RESULT_ARRAY_BY(type, name, param [, flags])  an array whose size is the value of parameter `param`
//   MILLRACE_RESULT_BYTES(name, most, per_byte [, flags])  a byte string, at most `most + per_byte * record.size()` long
//   MILLRACE_REASON(name, text)                            a reason to reject a record
//   MILLRACE_TABLE(name, most)                             a file of at most `most` bytes, as a parameter (table.cuh)
//
// Types are [u]int8_t to [u]int64_t, float and double. The flags are millrace::hex, millrace::bare and
// millrace::bare_column (declare.cuh). The code is one of
//
//   MILLRACE_RECORD(record, params, result)                 one thread per record
//   MILLRACE_RECORD_WARP(record, params, result, team)      32 threads per record
//   MILLRACE_RECORD_BLOCK(threads, record, params, result, team)
//
// A team has lanes. On the CPU it has one lane, so use team.lane() and team.lanes() instead of constants (team.cuh). The result
// stores only the numbers and lengths that lane 0 has set. Every lane may write to arrays and byte strings. Numbers and arrays
// are zero until the code sets them.
//
// MILLRACE_SHARED(type, name, count) declares an array of a team in the GPU's shared memory. With one thread per
// record, each thread has its own array.
//
// Use passes if records share work, or if work should be divided by bytes instead of records. A pass works on the whole
// batch, block by block, and fills arrays in scratch memory. The passes run in order, and then the record code reads
// their output. Declare the arrays, then the passes, and then the code:
//
//     MILLRACE_SCRATCH(uint32_t, spaces, 0, 1, 0)        // type, name, and elements: per batch, per record and per byte
//
//     MILLRACE_PASS(count, 128, millrace::per_bytes(4096), batch, params, scratch, team) { // 128 threads for 4096 bytes
//         uint32_t from = batch.block() * 4096, end = min(from + 4096, batch.size());
//         for (uint32_t i = from + team.lane(); i < end; i += team.lanes()) {
//             if (batch[i] == ' ') scratch.spaces.add(batch.row_of(i), 1);
//         }
//     }
//
//     MILLRACE_RECORD(record, params, result) { result.spaces = record.scratch.spaces[record.row()]; }
//
// The number of blocks is millrace::per_bytes(n), per_records(n), blocks(n), or a millrace::Grid (passes.cuh). All
// blocks and lanes share the scratch memory, which is zero at first (scratch.cuh). A result must not depend on the
// order of blocks and lanes.
//
// An access outside a record or a result fails only that record. Define MILLRACE_UNCHECKED to omit these checks.
#pragma once

#include "millrace/declare.cuh"
#include "millrace/description.h"
#include "millrace/passes.cuh"
#include "millrace/platform.cuh"
#include "millrace/record.cuh"
#include "millrace/run.cuh"
#include "millrace/scratch.cuh"
#include "millrace/table.cuh"
#include "millrace/team.cuh"
