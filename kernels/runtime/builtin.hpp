// The descriptions of the built-in operators. They determine the parameter block and the size of a result, as for any other
// operator.
#pragma once

#include "../math/quality_fields.cuh"
#include "millrace/description.h"

namespace millrace {

// A description with its entries. Entries that an operator doesn't have are zero.
struct Declared {
    millrace_description head;
    millrace_parameter parameters[4];
    millrace_field fields[kQualityAllFields];
    millrace_reason reasons[1];
};

extern const Declared kCrc32cDeclared;
extern const Declared kMinhashDeclared;
extern const Declared kQualityDeclared;
extern const Declared kNeardupDeclared;

} // namespace millrace
