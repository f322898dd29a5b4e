// Checks operators that compute a hash that is specified elsewhere.
#pragma once

#include <string>

#include "batch.hpp"

// Compares blake3 with the official test vectors, and its code for a block with its code for one lane.
void check_blake3(const std::string &folder);

// Returns what simhash must return, computed with a counter per bit.
Answer simhash(uint32_t width, const std::string &row);
