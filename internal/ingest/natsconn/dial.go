package natsconn

import (
	"errors"
	"net"
	"time"

	"millrace/internal/ingest/pause"
)

// connectTimeout is the time limit for connecting to one server.
const connectTimeout = 5 * time.Second

// errStalled is the error of a connection that was open during a stall of the process.
var errStalled = errors.New("the process was stopped for a while, and what this connection held is too old")

// dialer opens connections that deliver no outdated bytes. The kernel drops bytes that the server doesn't acknowledge within the
// time unacknowledged (Linux only). After a stall of the process, a connection transfers nothing more.
type dialer struct{ watch *pause.Watch }

// Dial implements nats.CustomDialer. It returns the connection below TLS.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: connectTimeout, Control: dropLate}).Dial(network, address)
	if err != nil {
		return nil, err
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
