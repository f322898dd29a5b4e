package natsconn

import (
	"syscall"
	"time"
)

// unacknowledged is how long the other end may leave sent bytes unacknowledged. Then the kernel drops them and ends the connection, also
// when the process is gone; otherwise it would deliver them when a cut heals, up to a quarter of an hour later.
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
