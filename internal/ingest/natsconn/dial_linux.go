package natsconn

import (
	"syscall"
	"time"
)

// unacknowledged is the time for which the kernel waits for the other end to acknowledge bytes. The kernel then drops the bytes and
// closes the connection, even if the process has ended. Otherwise it might deliver the bytes up to 15 minutes later, when the
// network recovers.
const unacknowledged = 5 * time.Second

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, in milliseconds.
const tcpUserTimeout = 18

func dropLate(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unacknowledged.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return set
}
