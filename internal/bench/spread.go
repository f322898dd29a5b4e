package bench

import (
	"slices"

	"millrace/internal/bench/report"
)

// spread is the median of samples with the 10th and the 90th percentile. It panics without samples.
func spread(samples []float64) report.Spread {
	sorted := slices.Sorted(slices.Values(samples))
	return report.Spread{
		Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.1), High: quantile(sorted, 0.9), N: len(sorted),
	}
}

// quantile is the q-th quantile, 0 to 1, of sorted samples, on the line between the two samples beside it.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	share := at - float64(below)
	return sorted[below]*(1-share) + sorted[below+1]*share
}

// median is the median alone.
func median(samples []float64) float64 { return spread(samples).Median }

// percentile is one quantile alone.
func percentile(samples []float64, q float64) float64 {
	return quantile(slices.Sorted(slices.Values(samples)), q)
}
