package faults

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// rawInput is an input in the form of protocol bytes. Clients don't write such subjects and headers, but servers store
// them.
type rawInput struct {
	subject string
	header  string // includes its first line and its empty last line; empty if there is no header
	payload []byte
}

func (r rawInput) appendTo(dst []byte) []byte {
	if r.header == "" {
		dst = fmt.Appendf(dst, "PUB %s %d\r\n", r.subject, len(r.payload))
	} else {
		dst = fmt.Appendf(dst, "HPUB %s %d %d\r\n%s", r.subject, len(r.header), len(r.header)+len(r.payload), r.header)
	}
	dst = append(dst, r.payload...)
	return append(dst, "\r\n"...)
}

// publishRaw publishes inputs unchanged to the first server, and returns the server's error for each refused input. A
// server closes the connection after some errors. The next input then uses a new connection.
func (r *rig) publishRaw(inputs []rawInput) (refused map[int]string) {
	r.t.Helper()
	refused = map[int]string{}
	var c *rawConn
	for i, in := range inputs {
		if c == nil {
			c = r.dialRaw()
		}
		said, err := c.exchange(in.appendTo(nil))
		if said != "" {
			refused[i] = said
		}
		if err != nil {
			_ = c.Close() // the server has closed the connection
			c = nil
		}
	}
	if c != nil {
		_ = c.Close() // the server has answered every operation
	}
	r.awaitStored()
	return refused
}

// awaitStored returns when the input stream has stored every message that the server has accepted. The server answers
// before the stream takes a message from its queue. awaitStored sends the input stream a message that expects another
// stream. The input stream refuses it after it has stored the earlier messages.
func (r *rig) awaitStored() {
	r.t.Helper()
	_, err := r.JS.Publish(r.Ctx(), "ingest.web.0", nil, jetstream.WithExpectStream("ANOTHER"))
	var refusal *jetstream.APIError
	if !errors.As(err, &refusal) || refusal.ErrorCode != codeOtherStream {
		r.t.Fatalf("a message for another stream: %v, want code %d", err, codeOtherStream)
	}
}

// codeOtherStream is the server's error for a message that expects to be stored in another stream.
const codeOtherStream = 10060

// rawConn is a connection without a client library.
type rawConn struct {
	net.Conn
	in *bufio.Reader
}

func (r *rig) dialRaw() *rawConn {
	r.t.Helper()
	conn, err := net.DialTimeout("tcp", r.servers[0].addr, natstest.Patience)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &rawConn{Conn: conn, in: bufio.NewReader(conn)}
	if said, err := c.exchange([]byte(`CONNECT {"verbose":false,"pedantic":false,"headers":true,"protocol":1}` + "\r\n")); said != "" || err != nil {
		r.t.Fatalf("connecting: %q, %v", said, err)
	}
	return c
}

// exchange sends operations and returns the server's errors once the server has read all operations. It returns an
// error if the connection has ended.
func (r *rawConn) exchange(operations []byte) (said string, err error) {
	if err := r.SetDeadline(time.Now().Add(natstest.Patience)); err != nil {
		return "", err
	}
	if _, err := r.Write(append(operations, "PING\r\n"...)); err != nil {
		return "the connection is closed", err
	}
	for {
		line, err := r.in.ReadString('\n')
		switch {
		case strings.HasPrefix(line, "-ERR"):
			said += strings.TrimSpace(line)
		case strings.HasPrefix(line, "PONG"):
			return said, nil
		case strings.HasPrefix(line, "PING"):
			_, err = io.Copy(r, bytes.NewReader([]byte("PONG\r\n")))
		}
		if err != nil {
			return said + "; the connection is closed", err
		}
	}
}
