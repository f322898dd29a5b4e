package natsconn

import (
	"net"
	"syscall"
	"testing"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/pause"
)

// TestTheKernelDropsWhatIsNotAcknowledged checks the socket option that makes the kernel drop bytes that are not
// acknowledged in time.
func TestTheKernelDropsWhatIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	c := natstest.Must((&dialer{watch: pause.Process()}).Dial("tcp", listen(t).Addr().String()))(t)
	defer func() { _ = c.Close() }()
	raw := natstest.Must(c.(*freshConn).Conn.(*net.TCPConn).SyscallConn())(t)
	var set int
	err := raw.Control(func(fd uintptr) { set, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout) })
	if want := int(unacknowledged.Milliseconds()); err != nil || set != want {
		t.Errorf("TCP_USER_TIMEOUT is %d ms (%v), want %d", set, err, want)
	}
}
