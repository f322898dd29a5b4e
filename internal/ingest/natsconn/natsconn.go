// Package natsconn opens connections to NATS that reconnect for as long as it takes, and logs why there is none.
//
// It checks the files that identify the worker and the server before a server does: a credentials file, an NKey seed, certificates.
// Files are read again for every connection, so a file that is replaced on disk takes effect with the next connection. No error or log
// line quotes their content.
//
// The command worker, package ingest and the benchmarks connect with it. Start reading at Server and Open. Connections are all those of
// one worker.
package natsconn

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pause"
)

// pingInterval is the interval between pings to the server. After two pings without an answer, the connection
// counts as lost. Nothing else detects a cut that neither end is told about.
const pingInterval = 10 * time.Second

// Open opens a connection. Once open, it reconnects forever, even if the server refuses it for a while: expired
// credentials can be replaced on disk, and are read again for each attempt. Open logs what happens to the connection,
// and calls reconnected after each reconnect.
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
		// A publish without a connection fails at once. If it were kept for the next connection, it could arrive so
		// late that the result stream has forgotten its id.
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
			if errors.Is(err, nats.ErrPermissionViolation) { // a separate message, so that thousands of them don't hide others
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

// options returns the options of the NATS client for the files. The client reads them again for each connection.
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
