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

// Connections has a worker's connections to the server.
//
// Inputs and results use different connections if there are several. Otherwise the server's response to a batch of results would
// queue behind megabytes of inputs, and delay a partition's next batch. The first connection carries all requests except pulls. With
// shared delivery it also carries the inputs, and the other connections carry the results. With exclusive delivery it also carries
// the results, and the other connections share the inputs of the partitions.
type Connections []*nats.Conn

// RequestTimeout is the time limit for the server's response to a request.
const RequestTimeout = 2 * time.Second

// DefaultConnections returns the default number of connections for exclusive delivery (adr/0026) or shared delivery
// (docs/benchmarks.md).
func DefaultConnections(exclusive bool) int {
	if exclusive {
		return 4
	}
	return 1
}

// ForPartition returns the connection for the inputs of partition p during the worker's n-th lease on p. If there are several such
// connections, consecutive leases use different ones, because the previous connection may have failed.
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

// Connected reports whether all connections are up.
func (l Connections) Connected() bool {
	for _, nc := range l {
		if !nc.IsConnected() {
			return false
		}
	}
	return true
}

// connectedEvery is the interval between the checks of AwaitConnected.
const connectedEvery = 50 * time.Millisecond

// AwaitConnected waits until at least one connection is up, or one is closed permanently. It reports false if ctx ends. It doesn't
// wait for all connections, because the server may refuse some of them for an unlimited time.
func (l Connections) AwaitConnected(ctx context.Context) bool {
	for !slices.ContainsFunc(l, (*nats.Conn).IsConnected) && !l.Closed() {
		if !retry.Sleep(ctx, connectedEvery) {
			return false
		}
	}
	return ctx.Err() == nil
}

// Closed reports whether a connection is closed permanently.
func (l Connections) Closed() bool {
	for _, nc := range l {
		if nc.IsClosed() {
			return true
		}
	}
	return false
}

// Ended returns an error if a connection is closed permanently. The client closes a connection after a server error that it
// doesn't recognize, such as the error for a message that exceeds a lowered max_payload. A new connection has the new limit.
func (l Connections) Ended() error {
	for _, nc := range l {
		if nc.IsClosed() {
			return fmt.Errorf("%w (start the worker again): %w", nats.ErrConnectionClosed, cmp.Or(nc.LastError(), errors.New("by this process")))
		}
	}
	return nil
}

// Flush waits until the server has received everything that was sent over all connections.
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
