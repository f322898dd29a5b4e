//go:build !linux

package natsconn

import "syscall"

// dropLate does nothing, because only Linux can drop unacknowledged bytes after a time limit.
func dropLate(_, _ string, _ syscall.RawConn) error { return nil }
