// Quantiles of samples.
#pragma once

#include <vector>

namespace yardstick {

// Returns the quantile q (0 to 1) of the samples, which may be in any order. It interpolates linearly between the two nearest
// samples: 0 returns the minimum, 0.5 the median and 1 the maximum. Throws Failure if there are no samples.
double quantile(std::vector<double> samples, double q);

inline double median(const std::vector<double> &samples) { return quantile(samples, 0.5); }

} // namespace yardstick
