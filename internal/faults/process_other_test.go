//go:build !linux

package faults

import "os/exec"

// On systems other than Linux, only the tests' cleanup kills processes.

func pinThread() {}

func dieWithParent(*exec.Cmd) {}
