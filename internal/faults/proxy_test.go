package faults

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
)

// proxy stands between a worker and its server on TCP. It can hold up one direction, cut connections, refuse new
// ones, and lose messages on their way to the worker.
type proxy struct {
	listener net.Listener
	target   string
	lose     func(subject, body []byte) bool // nil: nothing is lost

	mu       sync.Mutex
	conns    map[net.Conn]bool
	refusing bool
	wg       sync.WaitGroup

	up, down valve // towards the server, and from it
}

// proxy makes one before the first server. lose is called by one goroutine for each connection.
func (r *rig) proxy(lose func(subject, body []byte) bool) *proxy {
	r.t.Helper()
	l, err := net.Listen("tcp", freePort(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	p := &proxy{listener: l, target: r.servers[0].addr, lose: lose, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	r.t.Cleanup(func() {
		_ = l.Close() // ends accept
		p.refuse(true)
		p.up.open()
		p.down.open()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(client, server) {
			_ = client.Close() // the worker tries again
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.wg.Go(func() { p.copy(server, client); p.remove(client, server) })
		p.wg.Go(func() { p.forward(client, server); p.remove(client, server) })
	}
}

func (p *proxy) add(conns ...net.Conn) bool {
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

func (p *proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // the other direction may have closed it
		delete(p.conns, c)
	}
}

// cut closes all connections; the worker may connect again.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // what copies notices, and removes it
	}
}

// refuse cuts, and lets nobody connect until it is called with false.
func (p *proxy) refuse(refusing bool) {
	p.mu.Lock()
	p.refusing = refusing
	p.mu.Unlock()
	if refusing {
		p.cut()
	}
}

// copy moves what the worker says.
func (p *proxy) copy(server, client net.Conn) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		p.up.pass()
		if _, writeErr := server.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// forward moves what the server says, one operation of the protocol at a time.
func (p *proxy) forward(client, server net.Conn) {
	in := bufio.NewReaderSize(server, 1<<16)
	out := bufio.NewWriterSize(client, 1<<16)
	for {
		operation, subject, body, err := readOperation(in)
		if err != nil {
			return
		}
		p.down.pass()
		if body != nil && p.lose != nil && p.lose(subject, body) {
			continue
		}
		_, _ = out.Write(operation) // its error is Flush's too
		_, _ = out.Write(body)      // likewise
		if in.Buffered() == 0 {
			if out.Flush() != nil {
				return
			}
		}
	}
}

// readOperation reads one operation from the server. A message has a subject and a body, headers included.
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

// valve lets bytes pass while it is open, as it is at first.
type valve struct {
	mu     sync.Mutex
	closed chan struct{} // closed again when the valve opens; nil while it is open
}

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed == nil {
		v.closed = make(chan struct{})
	}
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed != nil {
		close(v.closed)
		v.closed = nil
	}
}

// pass waits until the valve is open.
func (v *valve) pass() {
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	if closed != nil {
		<-closed
	}
}
