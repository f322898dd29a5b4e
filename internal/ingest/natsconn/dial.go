package natsconn

import (
	"cmp"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pause"
)

// connectTimeout is the time limit for connecting to one server.
const connectTimeout = 5 * time.Second

// errStalled is the error of a connection that was open during a stall of the process.
var errStalled = errors.New("the process was stopped for a while, so the bytes that this connection held are too old")

// dialer opens connections that deliver no outdated bytes. The kernel drops bytes that the server doesn't acknowledge within the
// time unacknowledged (Linux only). After a stall of the process, a connection transfers nothing more.
type dialer struct {
	watch *pause.Watch
	last  error // error of the latest Dial
}

// Dial implements nats.CustomDialer. It returns the connection below TLS.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	var raw net.Conn
	raw, d.last = (&net.Dialer{Timeout: connectTimeout, Control: dropLate}).Dial(network, address)
	if d.last != nil {
		return nil, d.last
	}
	return &freshConn{Conn: raw, watch: d.watch, stalls: d.watch.Count()}, nil
}

// freshConn is a connection that fails after the first stall of the process.
type freshConn struct {
	net.Conn
	watch  *pause.Watch
	stalls uint64 // number of stalls when the connection was opened
}

func (c *freshConn) check() error {
	if c.watch.Count() == c.stalls {
		return nil
	}
	_ = c.Close() // concurrent readers and writers fail too
	return errStalled
}

func (c *freshConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if stalled := c.check(); stalled != nil {
		return 0, stalled
	}
	return n, err
}

func (c *freshConn) Write(b []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// outage logs why a connection is down. The client library reports only some failures. For example, it doesn't report an expired
// server certificate.
type outage struct {
	log    *slog.Logger
	dial   *dialer
	advice func(error) string        // returns advice on an error
	nc     atomic.Pointer[nats.Conn] // nil before Open returns

	since, logged time.Time // start of the outage, and time of the latest log line; only beforeAttempt uses them
}

const (
	// The pause between two attempts to reconnect is reconnectWait, and a random time of less than reconnectJitter.
	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = 250 * time.Millisecond

	firstLog = time.Second      // minimum time from the loss until the first log line
	everyLog = 30 * time.Second // minimum time between further log lines
)

// beforeAttempt returns the pause before the n-th attempt to reach a server, counted from 1. It logs the reason why the previous
// attempt failed, but not each time, because there are several attempts per second.
func (o *outage) beforeAttempt(n int) (wait time.Duration) {
	now := time.Now()
	if n == 1 {
		o.since, o.logged = now, time.Time{}
	}
	if nc := o.nc.Load(); nc != nil && now.Sub(o.since) >= firstLog && now.Sub(o.logged) >= everyLog {
		o.logged = now
		// If a server was reached, the error of the handshake is in LastError.
		err := withoutAddress(cmp.Or(nc.LastError(), o.dial.last, nats.ErrNoServers))
		o.log.Warn("not connected to NATS, trying again", "for", now.Sub(o.since).Round(time.Second).String(), "error", err, "advice", o.advice(err))
	}
	return reconnectWait + rand.N(reconnectJitter)
}
