// Operators of libraries with their own host code.
#pragma once

#include "runtime.hpp"

namespace millrace {

// Returns whether library_open returned the operator.
bool is_library(const millrace_operator *op);

// Frees an operator that library_open returned, unless it is in use. The library itself stays open.
int32_t library_close(const millrace_operator *op, millrace_error *error);

} // namespace millrace
