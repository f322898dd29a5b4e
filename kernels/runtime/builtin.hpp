// What the built-in operators say about themselves. As for any other operator, the parameter block and the size of a
// result follow from it.
#pragma once

#include "millrace/description.h"

namespace millrace {

// A description with its entries. Entries that an operator doesn't have are zero.
struct Declared {
    millrace_description head;
    millrace_parameter parameters[3];
    millrace_field fields[1];
};

extern const Declared kCrc32cDeclared;
extern const Declared kMinhashDeclared;

} // namespace millrace
