package ingest

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// links are a worker's connections to the server: one, or more where one would hold it up. Each is read by one goroutine
// here and by one at the server.
//
// The first carries everything that is asked and, with shared delivery, the inputs. With exclusive delivery partitions are
// dealt out over all of them. Results are stored over those behind the first, where there are any.
type links []*nats.Conn

// DefaultConnections is how many connections are best. Several are faster where each partition has its consumer, and slower where all
// inputs come over one of them: docs/benchmarks.md.
func DefaultConnections(exclusive bool) int {
	if exclusive {
		return 3
	}
	return 1
}

// forPartition is where a partition's inputs come in a worker's n-th tenure of it: in the next over the next, since one that
// has gone silent may be dead without knowing.
func (l links) forPartition(p, n int) *nats.Conn { return l[(p+n)%len(l)] }

// forResults are where results are stored.
func (l links) forResults() []*nats.Conn {
	if len(l) == 1 {
		return l
	}
	return l[1:]
}

// connected says whether all are.
func (l links) connected() bool {
	for _, nc := range l {
		if !nc.IsConnected() {
			return false
		}
	}
	return true
}

// closed says whether one is closed for good.
func (l links) closed() bool {
	for _, nc := range l {
		if nc.IsClosed() {
			return true
		}
	}
	return false
}

// flush returns when the server has everything that was sent over any of them.
func (l links) flush(ctx context.Context) error {
	errs := make(chan error, len(l))
	for _, nc := range l {
		go func() { errs <- nc.FlushWithContext(ctx) }()
	}
	var all []error
	for range l {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
