package bench

import (
	"slices"

	"millrace/internal/bench/report"
)

// spread returns the median of values with the 10th and the 90th percentile. It panics if there are no values.
func spread(values []float64) report.Spread {
	sorted := slices.Sorted(slices.Values(values))
	return report.Spread{
		Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.1), High: quantile(sorted, 0.9), N: len(sorted),
	}
}

// ratioOf compares two figures that have one value per round. Median is the quotient of their medians, so that a table
// never shows a ratio that contradicts its other columns. Low and High are percentiles of the ratios round by round. ok
// is false unless both figures come from the same rounds and the divisor is positive in each.
func ratioOf(dividend, divisor []float64) (of report.Spread, ok bool) {
	if len(divisor) == 0 || len(dividend) != len(divisor) || slices.Min(divisor) <= 0 {
		return report.Spread{}, false
	}
	rounds := make([]float64, len(divisor))
	for i := range rounds {
		rounds[i] = dividend[i] / divisor[i]
	}
	of = spread(rounds)
	of.Median = median(dividend) / median(divisor)
	of.Low, of.High = min(of.Low, of.Median), max(of.High, of.Median)
	return of, true
}

// quantile returns the q-th quantile (0 to 1) of sorted values, interpolated between the two nearest.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	share := at - float64(below)
	return sorted[below] + share*(sorted[below+1]-sorted[below]) // exact if both are equal
}

// median returns the median of values. It panics if there are no values.
func median(values []float64) float64 { return Percentile(values, 0.5) }

// Percentile returns a quantile (0 to 1) of values. It panics if there are no values.
func Percentile(values []float64, q float64) float64 {
	return quantile(slices.Sorted(slices.Values(values)), q)
}
