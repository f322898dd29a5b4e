package lease

import (
	"time"

	"millrace/internal/ingest/inflight"
)

func (e *modelLease) fetch(int, time.Duration, func(inflight.Incoming)) (came int, err error) {
	panic("only shared delivery fetches")
}

func (p *modelPull) drain() {}

func (p *modelPull) rest(func(inflight.Incoming) bool) {}
