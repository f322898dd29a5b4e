package ingest

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// links are a worker's connections to the server: one, or more where one would hold it up. Each is read by one goroutine
// here and by one at the server.
//
// Where there are several, inputs and results do not share one: what the server answers to a batch of results would come behind
// the inputs that wait in the same connection, megabytes of them, and a partition's next batch waits for it. The first carries
// everything that is asked and, with shared delivery, the inputs; results are stored over the others. With exclusive delivery
// it is the other way round: the first carries the results too, and partitions are dealt out over the others.
type links []*nats.Conn

// DefaultConnections is how many connections there are by default. With exclusive delivery three read inputs, which is where their number
// shows if anywhere (adr/0026); with shared delivery all inputs come over one whatever their number: docs/benchmarks.md.
func DefaultConnections(exclusive bool) int {
	if exclusive {
		return 4
	}
	return 1
}

// forPartition is where a partition's inputs come in a worker's n-th lease on it: in the next over the next, since one that
// has gone silent may be dead without knowing.
func (l links) forPartition(p, n int) *nats.Conn {
	inputs := l.behindFirst()
	return inputs[(p+n)%len(inputs)]
}

// forResults are where results are stored.
func (l links) forResults(exclusive bool) links {
	if exclusive {
		return l[:1]
	}
	return l.behindFirst()
}

// behindFirst are all but the first, or the first where it is the only one.
func (l links) behindFirst() links {
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

// awaitConnected returns once none of them is without a connection, or is closed for good. It is false when ctx is done before.
func (l links) awaitConnected(ctx context.Context) bool {
	for _, nc := range l {
		if !nc.IsConnected() && !awaitConnected(ctx, nc) {
			return false
		}
	}
	return ctx.Err() == nil
}

func awaitConnected(ctx context.Context, nc *nats.Conn) bool {
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	for !nc.IsConnected() && !nc.IsClosed() {
		select {
		case <-changed:
		case <-ctx.Done():
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
