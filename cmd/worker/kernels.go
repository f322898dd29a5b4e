//go:build !faults

package main

import (
	"millrace/internal/device"
	"millrace/internal/operator"
)

// standIn says that the CPU stands in for a GPU, whose way of working is to be seen: batches are copied there too.
const standIn = false

// standInFor is the CPU device as it is.
func standInFor(d device.Device) (device.Device, error) { return d, nil }

// hostKernels are the operators of the CPU device.
func hostKernels() []device.HostKernel { return operator.HostKernels() }
