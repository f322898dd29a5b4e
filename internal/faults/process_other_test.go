//go:build !linux

package faults

import (
	"net"
	"os/exec"
	"testing"
)

// On systems other than Linux, only the tests' cleanup kills processes.

func pinThread() {}

func dieWithParent(*exec.Cmd) {}

// holdPort returns an address on which nothing listens. Another process may claim the address.
func holdPort(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
