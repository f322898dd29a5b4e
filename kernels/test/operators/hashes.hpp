// Checks operators that compute a hash with a published specification.
#pragma once

#include <string>

#include "batch.hpp"

// Compares blake3 with the official test vectors, and the results for a block with the results for one lane.
void check_blake3(const std::string &folder);

// Returns the expected answer of simhash, computed with a counter per bit.
Answer simhash(uint32_t width, const std::string &row);
