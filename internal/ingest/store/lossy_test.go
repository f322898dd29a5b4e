package store

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
)

// lossy dials for a client, and stands between it and the server: it can lose messages on their way to the client,
// and cut the connection.
type lossy struct {
	mu      sync.Mutex
	conns   []net.Conn
	refused bool
	lose    func(subject string, body []byte) bool
}

// Dial implements nats.CustomDialer.
func (l *lossy) Dial(network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused {
		return nil, net.ErrClosed
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	l.conns = append(l.conns, conn)
	out, in := io.Pipe()
	go l.forward(conn, in)
	return &lossyConn{Conn: conn, in: out}, nil
}

// losing has the messages dropped that lose says true for. It is asked for one at a time.
func (l *lossy) losing(lose func(subject string, body []byte) bool) {
	l.mu.Lock()
	l.lose = lose
	l.mu.Unlock()
}

// cut closes the connections. The client may connect again.
func (l *lossy) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close() // the client may have closed it
	}
	l.conns = nil
}

// refuse cuts, and lets the client not connect until it is called with false.
func (l *lossy) refuse(refused bool) {
	l.mu.Lock()
	l.refused = refused
	l.mu.Unlock()
	if refused {
		l.cut()
	}
}

func (l *lossy) lost(subject string, body []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lose != nil && l.lose(subject, body)
}

// forward copies the server's side of the protocol, one operation at a time.
func (l *lossy) forward(server net.Conn, client *io.PipeWriter) {
	in := bufio.NewReaderSize(server, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err == nil {
			line, err = l.operation(line, in)
		}
		if err == nil && len(line) > 0 {
			_, err = client.Write(line)
		}
		if err != nil {
			_ = client.CloseWithError(err) // never fails
			return
		}
	}
}

// operation completes one that has a body, and is empty for one that is lost.
func (l *lossy) operation(line []byte, in io.Reader) ([]byte, error) {
	fields := bytes.Fields(line)
	if len(fields) == 0 || string(fields[0]) != "MSG" && string(fields[0]) != "HMSG" {
		return line, nil
	}
	size, err := strconv.Atoi(string(fields[len(fields)-1]))
	if err != nil {
		return nil, err
	}
	body := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(in, body); err != nil {
		return nil, err
	}
	if l.lost(string(fields[1]), body) {
		return nil, nil
	}
	return append(line, body...), nil
}

// lossyConn is what the client has of a connection.
type lossyConn struct {
	net.Conn
	in *io.PipeReader
}

func (c *lossyConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *lossyConn) Close() error {
	_ = c.in.Close() // never fails
	return c.Conn.Close()
}

// isAnswer says whether a message is the server's word on something stored, or on how far a batch has come.
func isAnswer(_ string, body []byte) bool {
	return bytes.Contains(body, []byte(`"stream":"RESULTS"`)) || bytes.Contains(body, []byte(`"type":"ack"`))
}
