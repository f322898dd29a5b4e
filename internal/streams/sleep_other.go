//go:build !linux

package streams

import "time"

func preciseTimers() {}

func shortSleep(d time.Duration) { time.Sleep(d) }
