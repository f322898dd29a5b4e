package ingest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// proxy stands between a client and the server on TCP. It can cut connections, refuse new ones, and lose
// messages on their way to the client.
type proxy struct {
	listener net.Listener
	target   string

	mu       sync.Mutex
	conns    map[net.Conn]bool
	refusing bool
	lose     func(subject string, body []byte) bool // nil: nothing is lost
	wg       sync.WaitGroup
}

// behindProxy has the rig's workers connect through a proxy.
func (r *rig) behindProxy() *proxy {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	p := &proxy{listener: l, target: strings.TrimPrefix(r.server.URL(), "nats://"), conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	r.t.Cleanup(func() {
		_ = l.Close() // ends accept
		p.refuse(true)
		p.wg.Wait()
	})
	r.url = "nats://" + l.Addr().String()
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(client, server) {
			_ = client.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.wg.Go(func() { _, _ = io.Copy(server, client); p.remove(client, server) })
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

// cut closes all connections; clients may connect again.
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

// losing has messages to the client dropped that lose says true for.
func (p *proxy) losing(lose func(subject string, body []byte) bool) {
	p.mu.Lock()
	p.lose = lose
	p.mu.Unlock()
}

func (p *proxy) lost(subject string, body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lose != nil && p.lose(subject, body)
}

// forward copies the server's side of the protocol, one operation at a time.
func (p *proxy) forward(client, server net.Conn) {
	in := bufio.NewReaderSize(server, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		fields := bytes.Fields(line)
		if len(fields) > 0 && (string(fields[0]) == "MSG" || string(fields[0]) == "HMSG") {
			size, err := strconv.Atoi(string(fields[len(fields)-1]))
			if err != nil {
				return
			}
			body := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(in, body); err != nil {
				return
			}
			if p.lost(string(fields[1]), body) {
				continue
			}
			line = append(line, body...)
		}
		if _, err := client.Write(line); err != nil {
			return
		}
	}
}

// isPubAck says whether a message is the server's word that the result stream has stored something.
func isPubAck(body []byte) bool { return bytes.HasPrefix(body, []byte(`{"stream":"RESULTS"`)) }
