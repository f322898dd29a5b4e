package natsconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/retry"
)

// Connections are a worker's connections to the server. One goroutine here and one at the server read each.
//
// If there are several, inputs and results do not share one. Otherwise the server's answer to a batch of results would queue behind
// megabytes of inputs, and a partition's next batch waits for that answer. The first connection carries all requests. With shared delivery
// it also carries the inputs, and the others carry the results. With exclusive delivery it also carries the results, and the partitions are
// spread over the others.
type Connections []*nats.Conn

// RequestTimeout bounds how long the server may take to answer a request.
const RequestTimeout = 2 * time.Second

// DefaultConnections returns the default number of connections. With exclusive delivery three of them carry inputs
// (adr/0026). With shared delivery one carries all inputs (docs/benchmarks.md).
func DefaultConnections(exclusive bool) int {
	if exclusive {
		return 4
	}
	return 1
}

// ForPartition returns the connection for the inputs of a partition in a worker's n-th lease on it. Each lease uses
// the next connection, in case the last one is dead.
func (l Connections) ForPartition(p, n int) *nats.Conn {
	inputs := l.exceptFirst()
	return inputs[(p+n)%len(inputs)]
}

// ForResults returns the connections for results.
func (l Connections) ForResults(exclusive bool) Connections {
	if exclusive {
		return l[:1]
	}
	return l.exceptFirst()
}

// exceptFirst returns all connections except the first, or the first if it is the only one.
func (l Connections) exceptFirst() Connections {
	if len(l) == 1 {
		return l
	}
	return l[1:]
}

// Connected reports whether all are connected.
func (l Connections) Connected() bool {
	for _, nc := range l {
		if !nc.IsConnected() {
			return false
		}
	}
	return true
}

// connectedEvery is how often AwaitConnected checks the connections.
const connectedEvery = 50 * time.Millisecond

// AwaitConnected waits until one of the connections is up, or one is closed for good. It returns false if ctx ends first. One
// connection is enough: the server may refuse the others for as long as it likes.
func (l Connections) AwaitConnected(ctx context.Context) bool {
	for !slices.ContainsFunc(l, (*nats.Conn).IsConnected) && !l.Closed() {
		if !retry.Sleep(ctx, connectedEvery) {
			return false
		}
	}
	return ctx.Err() == nil
}

// Closed reports whether one is closed for good.
func (l Connections) Closed() bool {
	for _, nc := range l {
		if nc.IsClosed() {
			return true
		}
	}
	return false
}

// Ended returns an error if a connection is closed for good. The client closes one after an error of the server that it doesn't know, for
// example for a message that is larger than the server takes since its max_payload was lowered. New connections then know that limit.
func (l Connections) Ended() error {
	for _, nc := range l {
		if nc.IsClosed() {
			return fmt.Errorf("%w (start the worker again): %w", nats.ErrConnectionClosed, cmp.Or(nc.LastError(), errors.New("by this process")))
		}
	}
	return nil
}

// Flush waits until the server has received everything that was sent over any of them.
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
