//go:build !linux

package streams

import "time"

func preciseTimers() {}

func nap(d time.Duration) { time.Sleep(d) }
