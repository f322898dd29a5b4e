// Package natsconn opens connections to NATS that reconnect without a limit, and logs the reason while a connection is down.
//
// Before it connects, it checks the files that identify the worker and the server: credentials, an NKey seed and certificates. The
// client reads the files again for every connection, so a replaced file takes effect with the next connection. Errors and log
// lines don't quote the files.
//
// Start reading at Server and Open. Connections holds all connections of a worker.
package natsconn

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pause"
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
	out := &outage{log: log, advice: c.advice}
	opts = append(opts,
		nats.Name(name),
		nats.Timeout(connectTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		// A publish without a connection fails at once. A message that the client keeps for the next connection could arrive after
		// the result stream has forgotten its id.
		nats.ReconnectBufSize(-1),
		nats.SetCustomDialer(dialer{pause.Process()}),
		nats.ReconnectWait(250*time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, time.Second),
		nats.DisconnectErrHandler(out.began),
		nats.ReconnectErrHandler(out.failed),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("reconnected to NATS", "server", nc.ConnectedServerName())
			reconnected()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if refused(err) {
				out.note(err)
				return
			}
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			if errors.Is(err, nats.ErrPermissionViolation) { // a separate log message, because it may repeat often
				log.Warn("NATS permissions violation", "error", err, "advice", "grant it to the worker's user: docs/security.md lists the permissions that it needs")
				return
			}
			log.Warn("NATS connection", "subject", subject, "error", err)
		}),
	)
	nc, err := nats.Connect(c.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w (%s)", Redact(c.URL), withoutAddress(err), c.advice(err))
	}
	return nc, nil
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
