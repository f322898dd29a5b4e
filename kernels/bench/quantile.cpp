// Quantiles of samples.
#include "quantile.hpp"

#include <stddef.h>

#include <algorithm>

#include "failure.hpp"

namespace yardstick {

double quantile(std::vector<double> samples, double q) {
    if (samples.empty()) throw Failure("no samples: nothing was measured");
    std::sort(samples.begin(), samples.end());
    double place = q * static_cast<double>(samples.size() - 1);
    size_t below = static_cast<size_t>(place), above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
}

} // namespace yardstick
