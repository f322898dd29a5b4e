package ingest

import (
	"sync/atomic"
	"time"
)

// Stage is a worker's position in its life cycle.
type Stage int32

// The stages.
const (
	Starting Stage = iota
	Running
	Draining
	Stopped
)

func (s Stage) String() string { return [...]string{"starting", "running", "draining", "stopped"}[s] }

// lifecycle is the stage of a worker and the time of its last progress.
type lifecycle struct {
	stage    atomic.Int32 // a Stage
	progress atomic.Int64 // in Unix nanoseconds
}

// begin enters the stage Running. It reports false if the worker was started before.
func (l *lifecycle) begin() bool { return l.stage.CompareAndSwap(int32(Starting), int32(Running)) }

// drain enters the stage Draining, unless the worker has stopped.
func (l *lifecycle) drain() { l.stage.CompareAndSwap(int32(Running), int32(Draining)) }

// end enters the stage Stopped.
func (l *lifecycle) end() { l.stage.Store(int32(Stopped)) }

// progressed records that a device has computed a batch of payloads, or that the server has stored results. Probes, failed
// batches, dead letters and returned deliveries are not progress. A worker is unhealthy if it has batches in flight and none of
// them succeeds. Payloads that become dead letters on arrival (too_large) are never in flight, so they alone don't make the worker
// unhealthy.
func (l *lifecycle) progressed() { l.progress.Store(time.Now().UnixNano()) }
