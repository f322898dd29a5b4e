// The two ways in which a request can fail.
#pragma once

#include <stdexcept>

namespace yardstick {

// The request cannot be: its text says what is allowed. Nothing was done, and others may follow.
struct BadRequest : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// CUDA failed, or a result is wrong. No figure of this process is worth anything any more.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

} // namespace yardstick
