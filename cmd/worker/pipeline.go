package main

import (
	"runtime"
	"time"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// spin is for how long a small batch that is alone on a GPU is asked about: nearly all are back by then (see
// docs/benchmarks.md, latency).
const spin = 60 * time.Microsecond

// pipelineConfig is what the worker runs on a device.
func pipelineConfig(cfg *config.Config, d device.Info, ops []operator.Operator, observer streams.Observer) streams.Config {
	c := streams.Config{
		Lanes: cfg.Lanes, BatchBytes: int(cfg.BatchBytes), BatchPayloads: cfg.BatchPayloads,
		ScratchLimit: int64(cfg.ScratchLimit), Operators: ops, Observer: observer, Ranges: cfg.NVTX,
		Deadline: streams.Deadline{Min: cfg.BatchDeadlineMin, Max: cfg.BatchDeadlineMax},
	}
	if d.Kind == "cuda" {
		c.Schedule = streams.Triple
	}
	// With few cores somebody else needs the one that would ask, and a CPU device is its own.
	if d.Kind == "cuda" && runtime.GOMAXPROCS(0) >= 4 {
		c.Spin = spin
	}
	return c
}
