//go:build !faults

package main

import (
	"millrace/internal/device"
	"millrace/internal/operator"
)

// emulateGPU makes the CPU device copy batches as a GPU does.
const emulateGPU = false

// injectFailures returns d unchanged.
func injectFailures(d device.Device) (device.Device, error) { return d, nil }

// hostKernels returns the operators of the CPU device. Tests replace this variable.
var hostKernels = operator.HostKernels
