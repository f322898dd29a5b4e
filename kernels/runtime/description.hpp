// The parts of a loaded operator's description that the runtime needs: its launch parameters, and the size of its
// results.
#pragma once

#include "millrace/description.h"
#include "runtime.hpp"

namespace millrace {

constexpr uint32_t kMostDescription = 1 << 16; // bytes of a description
constexpr uint32_t kMostBlock = 8 * MILLRACE_MOST_PARAMETERS; // bytes of a parameter block
constexpr uint64_t kTableAlign = 16; // alignment of the tables after a parameter block, in bytes

// Returns an error for a description that contradicts itself, that this runtime can't launch, or that needs a
// newer contract. `bytes` is the size of the memory that contains the description. The message names the
// operator.
int32_t check_description(const millrace_description *description, uint64_t bytes, millrace_error *error);

// Returns pass i of a description that has passed check_description.
millrace_pass pass_of(const millrace_description *description, uint32_t i);

// Returns the number of a pass's blocks for a batch.
inline uint64_t blocks_of(const millrace_pass &pass, uint64_t rows, uint64_t bytes) {
    return (pass.constant + pass.per_row * rows + pass.per_byte * bytes + pass.share - 1) / pass.share;
}

// Returns the size of the scratch memory for a batch, in bytes.
inline uint64_t scratch_of(const millrace_description *d, uint64_t rows, uint64_t bytes) {
    return d->scratch_bytes + d->scratch_per_row * rows + d->scratch_per_byte * bytes;
}

// Returns the start of the tables after a parameter block, or the size of the block if the operator has no tables.
uint64_t tables_start(const millrace_description *description);

// The size of an operator's results for given parameters.
struct ResultSize {
    uint32_t stride;                // bytes of one record
    bool statuses, strings;         // whether a result has a status per record, and byte strings
    uint64_t string_bytes;          // bytes of all byte strings' slots for each record
    uint64_t string_bytes_per_byte; // bytes of all byte strings' slots for each byte of the batch
};

// Checks a parameter block and computes the size of results. The description must have passed check_description.
int32_t bind_block(const millrace_description *description, const void *block, size_t bytes, ResultSize *size,
                   millrace_error *error);

// The positions of the parts of a batch's result: the records, then a status per record, then the byte strings. Each
// part starts at a multiple of 256. A result with only records has no padding. internal/operator/compiled computes the
// same positions.
struct ResultLayout {
    uint64_t status, strings, end;
};

inline ResultLayout layout_of(const ResultSize &size, uint64_t rows, uint64_t bytes) {
    ResultLayout layout;
    layout.status = layout.strings = layout.end = rows * size.stride;
    if (!size.statuses && !size.strings) return layout;
    layout.status = layout.strings = (layout.status + 255) / 256 * 256;
    if (size.statuses) layout.strings = (layout.status + rows + 255) / 256 * 256;
    layout.end = layout.strings + size.string_bytes * rows + size.string_bytes_per_byte * bytes;
    return layout;
}

} // namespace millrace
