// Package natsconn opens connections to NATS that reconnect without a limit, and logs the reason while a connection is down.
//
// Before it connects, it checks the files that identify the worker and the server: credentials, an NKey seed and certificates. The
// client reads the files again for every connection, so a replaced file takes effect with the next connection. Errors and log
// lines don't quote the files.
//
// Start reading at Server and Open. Connections holds all connections of a worker.
package natsconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pause"
	"millrace/internal/ingest/retry"
)

// pingInterval is the interval between pings to the server. After two pings without a response, the client reconnects. Only pings
// detect a broken connection that reports no error.
const pingInterval = 10 * time.Second

// Open opens a connection named name. The connection reconnects without a limit, even if the server refuses it, because expired
// credentials can be replaced on disk. It logs its events to log, and calls reconnected after each reconnect.
func Open(c Server, name string, log *slog.Logger, reconnected func()) (*nats.Conn, error) {
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	dial := &dialer{watch: pause.Process()}
	out := &outage{log: log, dial: dial, advice: c.advice}
	opts = append(opts,
		nats.Name(name),
		nats.Timeout(connectTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		// A publish without a connection fails at once. A message that the client keeps for the next connection could arrive after
		// the result stream has forgotten its id.
		nats.ReconnectBufSize(-1),
		nats.SetCustomDialer(dial),
		nats.CustomReconnectDelay(out.beforeAttempt),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() { // otherwise this process closed it
				log.Warn("disconnected from NATS, reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("reconnected to NATS", "server", nc.ConnectedServerName())
			reconnected()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			switch {
			case refused(err): // outage logs it
			case errors.Is(err, nats.ErrPermissionViolation): // a separate log message, because it may repeat often
				log.Warn("NATS permissions violation", "error", err, "advice", "grant it to the worker's user: docs/security.md lists the permissions that it needs")
			default:
				log.Warn("NATS connection", "subject", subject, "error", err)
			}
		}),
	)
	nc, err := nats.Connect(c.URL, opts...)
	if err != nil && !c.TLSFirst && isSilent(err) && beginsWithTLS(c.URL, opts) {
		err = errBeginsWithTLS
	}
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w (%s)", Redact(c.URL), withoutAddress(err), c.advice(err))
	}
	out.nc.Store(nc)
	return nc, nil
}

// beginsWithTLS reports whether a server that has sent nothing answers a TLS handshake, even if the connection then fails.
func beginsWithTLS(url string, opts []nats.Option) bool {
	nc, err := nats.Connect(url, append(opts, nats.TLSHandshakeFirst())...)
	if err == nil {
		nc.Close()
		return true
	}
	return !isSilent(err) && !isUnreachable(err) && !isAs[tls.RecordHeaderError](err)
}

// options returns the client options for the files of c. It returns an error if a file is invalid.
func (c Server) options() ([]nats.Option, error) {
	if err := c.wrong(time.Now()); err != nil {
		return nil, err
	}
	var opts []nats.Option
	if c.Creds != "" {
		opts = append(opts, nats.UserCredentials(c.Creds))
	}
	if c.NKey != "" {
		user, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, err
		}
		opts = append(opts, user)
	}
	if c.CA != "" {
		opts = append(opts, nats.RootCAs(c.CA))
	}
	if c.Cert != "" {
		opts = append(opts, nats.ClientCert(c.Cert, c.Key))
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// Connections has a worker's connections to the server.
//
// Inputs and results use different connections if there are several. Otherwise the server's response to a batch of results would
// queue behind megabytes of inputs, and delay a partition's next batch. The first connection carries all requests except pulls. With
// shared delivery it also carries the inputs, and the other connections carry the results. With exclusive delivery it also carries
// the results, and the other connections share the inputs of the partitions.
type Connections []*nats.Conn

// RequestTimeout is the time limit for the server's response to a request.
const RequestTimeout = 2 * time.Second

// DefaultConnections returns the default number of connections for exclusive or shared delivery (adr/0026).
func DefaultConnections(exclusive bool) int {
	if exclusive {
		return 4
	}
	return 2
}

// From returns the connections in another order, which begins with connection n of a cycle. Shards use different orders, so that they
// share the load of all connections.
func (l Connections) From(n int) Connections {
	n %= len(l)
	return slices.Concat(l[n:], l[:n])
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
	return !slices.ContainsFunc(l, func(nc *nats.Conn) bool { return !nc.IsConnected() })
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
func (l Connections) Closed() bool { return slices.ContainsFunc(l, (*nats.Conn).IsClosed) }

// Ended returns an error if a connection is closed permanently. The client closes a connection after a server error that it
// doesn't recognize, such as the error for a message that exceeds a lowered max_payload. A new connection has the new limit.
func (l Connections) Ended() error {
	i := slices.IndexFunc(l, (*nats.Conn).IsClosed)
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%w (start the worker again): %w", nats.ErrConnectionClosed, cmp.Or(l[i].LastError(), errors.New("by this process")))
}

// Flush waits until the server has received everything that was sent over all connections.
func (l Connections) Flush(ctx context.Context) error {
	var all []error
	for _, nc := range l {
		all = append(all, nc.FlushWithContext(ctx))
	}
	return errors.Join(all...)
}
