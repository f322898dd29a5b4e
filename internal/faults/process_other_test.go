//go:build !linux

package faults

import "os/exec"

// Elsewhere than on Linux processes are killed by the tests' cleanup alone.

func pinThread() {}

func dieWithParent(*exec.Cmd) {}
