package faults

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// Ports of servers are below those that the system assigns to clients, so that a killed server finds its port free when
// it is restarted.
const (
	firstPort = 20000
	endPort   = 32000
)

var nextPort atomic.Int64

// freePort returns an address on which nothing listens, and which no other test of this run gets.
func freePort(t testing.TB) string {
	t.Helper()
	const start = 97 // concurrent runs begin far from each other
	for range endPort - firstPort {
		n := nextPort.Add(1) + int64(os.Getpid()*start)
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+n%(endPort-firstPort))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return addr
	}
	t.Fatalf("no port from %d to %d is free", firstPort, endPort)
	return ""
}
