package natsconn

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// Connections are a worker's connections to the server: one, or more where one would hold it up. Each is read by one goroutine
// here and by one at the server.
//
// Where there are several, inputs and results do not share one: what the server answers to a batch of results would come behind
// the inputs that wait in the same connection, megabytes of them, and a partition's next batch waits for it. The first carries
// everything that is asked and, with shared delivery, the inputs; results are stored over the others. With exclusive delivery
// it is the other way round: the first carries the results too, and partitions are dealt out over the others.
type Connections []*nats.Conn

// RequestTimeout bounds how long the server may take to answer a question.
const RequestTimeout = 2 * time.Second

// DefaultConnections is how many connections there are by default. With exclusive delivery three read inputs, which is where their number
// shows if anywhere (adr/0026); with shared delivery all inputs come over one whatever their number: docs/benchmarks.md.
func DefaultConnections(exclusive bool) int {
	if exclusive {
		return 4
	}
	return 1
}

// ForPartition is where a partition's inputs come in a worker's n-th tenure of it: in the next over the next, since one that
// has gone silent may be dead without knowing.
func (l Connections) ForPartition(p, n int) *nats.Conn {
	inputs := l.exceptFirst()
	return inputs[(p+n)%len(inputs)]
}

// ForResults are where results are stored.
func (l Connections) ForResults(exclusive bool) Connections {
	if exclusive {
		return l[:1]
	}
	return l.exceptFirst()
}

// exceptFirst are all but the first, or the first where it is the only one.
func (l Connections) exceptFirst() Connections {
	if len(l) == 1 {
		return l
	}
	return l[1:]
}

// Connected says whether all are.
func (l Connections) Connected() bool {
	for _, nc := range l {
		if !nc.IsConnected() {
			return false
		}
	}
	return true
}

// AwaitConnected returns once none of them is without a connection, or is closed for good. It is false when ctx is done before.
func (l Connections) AwaitConnected(ctx context.Context) bool {
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

// Closed says whether one is closed for good.
func (l Connections) Closed() bool {
	for _, nc := range l {
		if nc.IsClosed() {
			return true
		}
	}
	return false
}

// Flush returns when the server has everything that was sent over any of them.
func (l Connections) Flush(ctx context.Context) error {
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
