package main

import (
	"runtime"
	"time"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// spin is how long the pipeline polls for a small batch that is alone on a GPU. Nearly all such batches complete in that time (see
// docs/benchmarks.md, latency).
const spin = 60 * time.Microsecond

// pipelineConfig returns the configuration of the pipeline on d.
func pipelineConfig(cfg *config.Config, d device.Info, ops []operator.Operator, observer streams.Observer) streams.Config {
	c := streams.Config{
		Lanes: cfg.Lanes, BatchBytes: int(cfg.BatchBytes), BatchPayloads: cfg.BatchPayloads,
		ScratchLimit: int64(cfg.ScratchLimit), Operators: ops, Observer: observer, Ranges: cfg.NVTX,
		Deadline: streams.Deadline{Min: cfg.BatchDeadlineMin, Max: cfg.BatchDeadlineMax},
	}
	if d.Kind == "cuda" {
		c.Schedule = streams.Triple
	}
	// Polling needs a core to itself. With few cores, other goroutines need them all, and a CPU device computes on them.
	if d.Kind == "cuda" && runtime.GOMAXPROCS(0) >= 4 {
		c.Spin = spin
	}
	return c
}
