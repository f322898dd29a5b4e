// The two ways in which a request can fail.
#pragma once

#include <stdexcept>

namespace yardstick {

// The request is invalid; the message lists the permitted values. Nothing was done, and further requests may follow.
struct BadRequest : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// CUDA failed, or a result is wrong. All later measurements of this process would be invalid.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

} // namespace yardstick
