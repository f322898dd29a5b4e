package natstest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Proxy is a TCP proxy between clients and a server. It can hold bytes in one direction, close connections, refuse
// new connections, and drop messages to the clients.
type Proxy struct {
	Up, Down Valve // bytes to the server, and bytes from the server

	listener net.Listener
	target   string

	mu       sync.Mutex
	conns    map[net.Conn]bool
	refusing bool
	lose     func(subject string, body []byte) bool // nil drops nothing
	wg       sync.WaitGroup
}

// NewProxy listens on addr (host:port) for the server at target until the test ends.
func NewProxy(t testing.TB, addr, target string) *Proxy {
	t.Helper()
	p := &Proxy{listener: Must(net.Listen("tcp", addr))(t), target: target, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close() // ends accept
		p.Refuse(true)
		p.Up.Open()
		p.Down.Open()
		p.wg.Wait()
	})
	return p
}

// URL returns the address for clients.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Cut closes all connections. Clients may connect again.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // the goroutines that forward bytes then remove c
	}
}

// Refuse closes all connections and refuses new ones until it is called with false.
func (p *Proxy) Refuse(refusing bool) {
	p.mu.Lock()
	p.refusing = refusing
	p.mu.Unlock()
	if refusing {
		p.Cut()
	}
}

// Lose drops messages to the clients for which lose returns true. Calls of lose don't overlap. A nil lose drops nothing.
func (p *Proxy) Lose(lose func(subject string, body []byte) bool) {
	p.mu.Lock()
	p.lose = lose
	p.mu.Unlock()
}

func (p *Proxy) lost(subject, body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lose != nil && p.lose(string(subject), body)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(client, server) {
			_ = client.Close() // the client connects again
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.wg.Go(func() { p.copy(server, client); p.remove(client, server) })
		p.wg.Go(func() { p.forward(client, server); p.remove(client, server) })
	}
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing {
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

func (p *Proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // the other direction may have closed c
		delete(p.conns, c)
	}
}

// copy forwards bytes from a client to the server.
func (p *Proxy) copy(server, client net.Conn) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if !p.Up.pass() {
			return
		}
		if _, writeErr := server.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// forward forwards bytes from the server to a client, one operation of the protocol at a time.
func (p *Proxy) forward(client, server net.Conn) {
	in := bufio.NewReaderSize(server, 1<<16)
	out := bufio.NewWriterSize(client, 1<<16)
	for {
		operation, subject, body, err := readOperation(in)
		if err != nil {
			_ = out.Flush() // the client still gets the bytes before the error
			return
		}
		if !p.Down.pass() {
			return
		}
		if body == nil || !p.lost(subject, body) {
			_, _ = out.Write(operation) // Flush returns the error too
			_, _ = out.Write(body)      // Flush returns the error too
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// readOperation reads one protocol operation from the server. For a message it also returns the subject and the
// body, which includes the headers.
func readOperation(in *bufio.Reader) (operation, subject, body []byte, err error) {
	if operation, err = in.ReadBytes('\n'); err != nil {
		return nil, nil, nil, err
	}
	fields := bytes.Fields(operation)
	if len(fields) < 2 || string(fields[0]) != "MSG" && string(fields[0]) != "HMSG" {
		return operation, nil, nil, nil
	}
	size, err := strconv.Atoi(string(fields[len(fields)-1]))
	if err != nil {
		return nil, nil, nil, err
	}
	body = make([]byte, size+len("\r\n"))
	_, err = io.ReadFull(in, body)
	return operation, fields[1], body, err
}

// Valve passes bytes while it is open. The zero Valve is open.
type Valve struct {
	mu   sync.Mutex
	held *held // nil while the valve is open
}

// held represents the bytes that wait at a closed valve.
type held struct {
	over chan struct{} // closed when the valve opens
	drop bool          // whether the bytes are then dropped, and their connections closed
}

// Close holds all bytes until Open or Drop.
func (v *Valve) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held == nil {
		v.held = &held{over: make(chan struct{})}
	}
}

// Open opens the valve and passes the held bytes.
func (v *Valve) Open() { v.end(false) }

// Drop opens the valve, drops the held bytes and closes their connections, as if the network had failed.
func (v *Valve) Drop() { v.end(true) }

func (v *Valve) end(drop bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held != nil {
		v.held.drop = drop
		close(v.held.over)
		v.held = nil
	}
}

// pass waits until the valve is open, and reports whether the bytes may pass.
func (v *Valve) pass() bool {
	v.mu.Lock()
	held := v.held
	v.mu.Unlock()
	if held == nil {
		return true
	}
	<-held.over
	return !held.drop
}
