//go:build faults

package main

import (
	"bytes"
	"errors"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// lethal is how a payload begins that loses the device of a worker built for tests. libmillrace-faulty.so, which does
// the same to a GPU, knows it too.
var lethal = []byte("poison!\n")

// endless is how a payload begins on which the kernels of a worker built for tests do not end.
var endless = []byte("endless\n")

// standIn has the CPU copy batches, as the GPU must that it stands in for in tests.
const standIn = true

// hostKernels are the operators of the CPU device, each of which a lethal payload breaks and an endless one hangs. So tests
// see a whole worker lose its device and end, on a machine without a GPU.
func hostKernels() []device.HostKernel {
	kernels := operator.HostKernels()
	for i, k := range kernels {
		kernels[i] = fragileKernel{k}
	}
	return kernels
}

type fragileKernel struct{ device.HostKernel }

func (k fragileKernel) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := k.HostKernel.Bind(params)
	return fragileOperator{bound}, err
}

type fragileOperator struct{ device.BoundHostKernel }

// Run fails with a lethal payload, which loses the device, and does not return with an endless one.
func (o fragileOperator) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	for i, end := range offsets[1:] {
		switch row := rows[offsets[i]:end]; {
		case bytes.HasPrefix(row, lethal):
			return errors.New("a payload that is made to break the device")
		case bytes.HasPrefix(row, endless):
			select {}
		}
	}
	return o.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}
