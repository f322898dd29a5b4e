package natsconn

import (
	"syscall"
	"time"
)

// unacknowledged is how long the other end may leave sent bytes unacknowledged. Then the kernel drops them and closes
// the connection, even if the process has ended. Otherwise it would deliver them when the network recovers, up to a
// quarter of an hour later.
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
