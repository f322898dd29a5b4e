// Quantiles of samples.
#pragma once

#include <vector>

namespace yardstick {

// The quantile q (0 to 1) of the samples, in any order: between the two nearest of them by linear interpolation, so
// that 0 is the least, 0.5 the median and 1 the greatest. Throws Failure if there are none.
double quantile(std::vector<double> samples, double q);

inline double median(const std::vector<double> &samples) { return quantile(samples, 0.5); }

} // namespace yardstick
