package faults

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// Ports of servers lie below those that the system gives to clients: a server that was killed must find its own
// free when it comes back.
const (
	firstPort = 20000
	endPort   = 32000
)

var nextPort atomic.Int64

// freePort is an address on which nobody listens, and which no other test of this run gets.
func freePort(t testing.TB) string {
	t.Helper()
	const start = 97 // runs side by side begin far from each other
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
