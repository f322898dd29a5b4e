package ingest

import (
	"sync/atomic"
	"time"
)

// Stage is where a worker is in its life.
type Stage int32

// The stages.
const (
	Starting Stage = iota
	Running
	Draining
	Stopped
)

func (s Stage) String() string { return [...]string{"starting", "running", "draining", "stopped"}[s] }

// lifecycle is the stage of a worker, and when payloads last came right.
type lifecycle struct {
	stage    atomic.Int32 // Stage
	progress atomic.Int64 // UnixNano
}

// begin enters the stage Running. It reports false if the worker was begun before.
func (l *lifecycle) begin() bool { return l.stage.CompareAndSwap(int32(Starting), int32(Running)) }

// drain enters the stage Draining, unless the worker has stopped.
func (l *lifecycle) drain() { l.stage.CompareAndSwap(int32(Running), int32(Draining)) }

// end enters the stage Stopped.
func (l *lifecycle) end() { l.stage.Store(int32(Stopped)) }

// progressed notes that payloads came right: a device has computed a batch of them, or the server has stored their results. Nothing else
// is progress, however busy it keeps the worker: no probe, no batch that fails, no dead letter, and nothing that is given back. So a worker
// isn't healthy if it has batches in flight and none of them comes right. Payloads that are given up as they are received (too_large) are
// never in flight, so a stream of nothing else does not harm it.
func (l *lifecycle) progressed() { l.progress.Store(time.Now().UnixNano()) }
