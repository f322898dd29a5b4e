package telemetry

import "github.com/prometheus/client_golang/prometheus"

// The histograms' buckets, in base units: seconds, bytes, payloads, records.
var (
	// stageBuckets range from 10 us, below which the cost of the launch dominates, to an hour, the longest deadline of
	// a batch that can be configured.
	stageBuckets = []float64{
		10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6,
		1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3,
		1, 2.5, 5, 10, 30, 60, 300, 3600,
	}

	// latencyBuckets range from 100 us, a round trip to the server, to an hour.
	latencyBuckets = []float64{
		100e-6, 250e-6, 500e-6,
		1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3,
		1, 2.5, 5, 10, 30, 60, 300, 3600,
	}

	// headroomBuckets start at 0: a message below that was settled too late and is delivered again. The default AckWait
	// of a consumer is 30 s, and 6 s is a fifth of it, the threshold of an alert.
	headroomBuckets = []float64{0, 0.1, 0.5, 1, 2, 5, 6, 10, 15, 20, 25, 30, 60, 120, 300, 600, 3600}

	// frameRecordBuckets end at the most records that MILLRACE_FRAME_RECORDS allows.
	frameRecordBuckets = append([]float64{0}, prometheus.ExponentialBuckets(1, 4, 13)...) // 0, and 1 to 16777216

	batchPayloadBuckets = prometheus.ExponentialBuckets(1, 2, 21)   // 1 to 1048576
	batchByteBuckets    = prometheus.ExponentialBuckets(256, 4, 12) // 256 to 1 GiB
)
