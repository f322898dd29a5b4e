//go:build !linux

package natsconn

import "syscall"

// dropLate does nothing: only Linux can be told to drop what is not acknowledged.
func dropLate(_, _ string, _ syscall.RawConn) error { return nil }
