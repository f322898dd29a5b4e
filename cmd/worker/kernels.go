//go:build !faults

package main

import (
	"millrace/internal/device"
	"millrace/internal/operator"
)

// hostKernels are the operators of the CPU device.
func hostKernels() []device.HostKernel { return operator.HostKernels() }
