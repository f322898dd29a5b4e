// Checks operators that compute a hash that is specified elsewhere.
#pragma once

#include <string>

// Compares blake3 with the official test vectors, and its code for a block with its code for one lane.
void check_blake3(const std::string &folder);
