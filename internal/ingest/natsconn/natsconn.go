// Package natsconn opens connections to NATS that reconnect for as long as it takes, and logs why there is none.
//
// It reads and checks the files that identify the worker and the server: a credentials file, an NKey seed, certificates. It reports
// what is wrong with a file before a server does, and explains why a connection was refused. Files are read again for every
// connection, so a file that is replaced on disk takes effect with the next connection. No error or log line quotes their content.
package natsconn

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/pause"
)

const (
	// connectTimeout bounds how long one server may take to answer.
	connectTimeout = 5 * time.Second

	// pingInterval is the interval between pings to the server. After two pings without an answer, the connection
	// counts as lost. Nothing else detects a cut that neither end is told about.
	pingInterval = 10 * time.Second
)

// Open opens a connection. Once open, it reconnects forever, even if the server refuses it for a while: expired
// credentials can be replaced on disk, and are read again for each attempt. Open logs what happens to the connection,
// and calls reconnected after each reconnect.
func Open(c Server, name string, log *slog.Logger, reconnected func()) (*nats.Conn, error) {
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	out := &outage{log: log, explain: c.advice}
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

// Inspect checks the files that c names, without a server.
func (c Server) Inspect(now time.Time) (findings []finding.Finding) {
	for _, f := range c.inspectFiles(now) {
		found := finding.Finding{What: f.Variable, Found: f.Path + " " + f.Found, Advice: f.Advice}
		switch {
		case f.Wrong:
			found.Level = finding.Error
		case f.Advice != "":
			found.Level = finding.Warning
		}
		findings = append(findings, found)
	}
	return findings
}

// advice returns what to check after a failed connection.
func (c Server) advice(err error) string {
	if text := c.explain(err); text != "" {
		return text
	}
	if errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || isNetwork(err) {
		return "is a server running there, and is MILLRACE_NATS_URL right? Without it the worker starts its own server"
	}
	return "check MILLRACE_NATS_URL and the MILLRACE_NATS_ files"
}

// isNetwork reports whether the server wasn't reached at all.
func isNetwork(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// withoutAddress removes the address from an error of net/url, which quotes it with its password.
func withoutAddress(err error) error {
	var bad *url.Error
	if errors.As(err, &bad) {
		return fmt.Errorf("bad address: %w", bad.Err)
	}
	return err
}

// Redact removes user, password and token from a list of server addresses.
func Redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, raw := range list {
		raw = strings.TrimSpace(raw)
		if u, err := url.Parse(raw); err == nil && u.User != nil {
			u.User = nil
			raw = u.String()
		} else if at := strings.LastIndexByte(raw, '@'); at >= 0 {
			raw = raw[at+1:]
		}
		list[i] = raw
	}
	return strings.Join(list, ",")
}
