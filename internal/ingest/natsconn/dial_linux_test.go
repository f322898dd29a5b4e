package natsconn

import (
	"net"
	"syscall"
	"testing"

	"millrace/internal/ingest/pause"
)

// TestTheKernelDropsWhatIsNotAcknowledged checks the socket option that makes the kernel drop bytes that are not
// acknowledged in time.
func TestTheKernelDropsWhatIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c, err := dialer{pause.Process()}.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	raw, err := c.(*freshConn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set int
	err = raw.Control(func(fd uintptr) { set, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout) })
	if want := int(unacknowledged.Milliseconds()); err != nil || set != want {
		t.Errorf("TCP_USER_TIMEOUT is %d ms (%v), want %d", set, err, want)
	}
}
