package natsconn

import (
	"errors"
	"net"
	"time"

	"millrace/internal/ingest/pause"
)

// connectTimeout bounds how long one server may take to answer.
const connectTimeout = 5 * time.Second

// errStalled is why a connection is given up.
var errStalled = errors.New("the process was stopped for a while, and what this connection held is too old")

// dialer makes connections that deliver nothing late: the kernel drops what the server has not acknowledged within unacknowledged, and
// what a connection held while the process was stopped goes neither way. It gives the connection below TLS.
type dialer struct{ watch *pause.Watch }

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: connectTimeout, Control: dropLate}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &freshConn{Conn: raw, watch: d.watch, stalls: d.watch.Count()}, nil
}

// freshConn is a connection that ends with the first stall of the process.
type freshConn struct {
	net.Conn
	watch  *pause.Watch
	stalls uint64 // how many there had been when it was made
}

func (c *freshConn) check() error {
	if c.watch.Count() == c.stalls {
		return nil
	}
	_ = c.Close() // who reads and who writes see it
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
