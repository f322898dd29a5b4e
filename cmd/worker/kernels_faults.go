//go:build faults

package main

import (
	"bytes"
	"errors"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// lethal is the start of a payload that makes a test build lose its device. libmillrace-faulty.so does the same on a
// GPU.
var lethal = []byte("poison!\n")

// endless is the start of a payload on which a kernel of a test build never returns.
var endless = []byte("endless\n")

// unfit is the size in bytes of a payload that the operators of a test build refuse if it is the longest of its batch.
// For such a batch, the operators request more result memory than any device has. The device continues to work.
const unfit = 30011

// emulateGPU makes the CPU device copy batches as a GPU does.
const emulateGPU = true

// hostKernels returns the operators of the CPU device. Tests replace this variable.
var hostKernels = fragileKernels

// fragileKernels returns operators that fail on a lethal payload, hang on an endless one, and refuse an unfit one. With
// them, tests can make a worker lose its device or give up a payload without a GPU.
func fragileKernels() []device.HostKernel {
	kernels := operator.HostKernels()
	for i, k := range kernels {
		kernels[i] = fragileKernel{k}
	}
	return kernels
}

// fragileKernel is a kernel that binds fragileOperators.
type fragileKernel struct{ device.HostKernel }

func (f fragileKernel) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := f.HostKernel.Bind(params)
	if state, ok := bound.(device.StateHostKernel); ok {
		return fragileState{fragileOperator{bound}, state}, err
	}
	return fragileOperator{bound}, err
}

// fragileState is the fragileOperator of a stateful operator. Its states don't fail.
type fragileState struct {
	fragileOperator
	state device.StateHostKernel
}

// NewState implements device.StateHostKernel.
func (f fragileState) NewState(s device.StateSize) (device.State, error) { return f.state.NewState(s) }

// StateBytes implements device.StateHostKernel.
func (f fragileState) StateBytes(s device.StateSize) (int64, error) { return f.state.StateBytes(s) }

// fragileOperator fails or hangs on some payloads.
type fragileOperator struct{ device.BoundHostKernel }

// Needs requests more result memory than any device has if the longest payload is unfit.
func (f fragileOperator) Needs(s device.Shape) device.Needs {
	n := f.BoundHostKernel.Needs(s)
	if s.Longest == unfit {
		n.Result = 1 << 40
	}
	return n
}

// Run returns an error for a lethal payload, which loses the device. It never returns for an endless one.
func (f fragileOperator) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	for i, end := range offsets[1:] {
		switch row := rows[offsets[i]:end]; {
		case bytes.HasPrefix(row, lethal):
			return errors.New("this payload breaks the device on purpose")
		case bytes.HasPrefix(row, endless):
			select {}
		}
	}
	return f.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}
