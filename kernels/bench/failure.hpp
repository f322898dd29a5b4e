// The two kinds of failure of a request.
#pragma once

#include <stdexcept>

namespace yardstick {

// The request is invalid. The message lists the permitted values. The request had no effect, and further requests may
// follow.
struct BadRequest : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// CUDA failed, or a result is wrong. All later measurements of this process would be invalid.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

} // namespace yardstick
