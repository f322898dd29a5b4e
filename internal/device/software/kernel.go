package software

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"millrace/internal/device"
)

// Kernel is an operator in Go with its parameters. It implements device.Kernel.
type Kernel struct {
	base   *Base
	name   string
	bound  device.BoundHostKernel
	closed atomic.Bool
}

// Kernel implements device.Device.
func (b *Base) Kernel(name string, params []byte) (device.Kernel, error) {
	const call = "kernel"
	if err := b.Usable(call); err != nil {
		return nil, err
	}
	source, ok := b.kernels[name]
	if !ok {
		return nil, b.Errorf(call, device.ErrNotFound, "no operator is called %q", name)
	}
	bound, err := source.Bind(params)
	if err != nil {
		return nil, b.Errorf(call, device.ErrInvalid, "operator %s: %v", name, err)
	}
	k := &Kernel{base: b, name: name, bound: bound}
	if err := b.Add(call, k); err != nil {
		return nil, err
	}
	return k, nil
}

// Name implements device.Kernel.
func (k *Kernel) Name() string { return k.name }

// Needs implements device.Kernel.
func (k *Kernel) Needs(shape device.Shape) device.Needs {
	needs := k.bound.Needs(shape)
	needs.InPlace = k.base.inPlace(shape, needs)
	return needs
}

// Run computes a batch: see device.BoundHostKernel.
func (k *Kernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	return k.bound.Run(rows, offsets, scratch, result, parallel)
}

// Leak implements Object.
func (k *Kernel) Leak() string { return "kernel " + k.name }

// Close implements device.Kernel. On a lost device it frees the kernel and returns the loss.
func (k *Kernel) Close() error {
	if k.closed.Swap(true) {
		return nil
	}
	k.base.Remove(k)
	return k.base.Err()
}

// CheckLaunch returns k as an open kernel of this device, and the arguments with their memory cut to the batch's size.
// It fails if the memory is too small or not aligned, or if the shape is impossible.
func (b *Base) CheckLaunch(k device.Kernel, args device.LaunchArgs) (*Kernel, device.LaunchArgs, error) {
	const call = "launch"
	own, ok := k.(*Kernel)
	if !ok || own == nil || own.base != b {
		return nil, args, b.Errorf(call, device.ErrInvalid, "the kernel is not one of this device")
	}
	if own.closed.Load() {
		return nil, args, b.Errorf(call, device.ErrClosed, "kernel %s was closed", own.name)
	}
	shape := args.Shape
	if shape.Rows < 0 || shape.Rows >= math.MaxInt/4 || shape.Bytes < 0 || shape.Longest < 0 || shape.Longest > shape.Bytes {
		return nil, args, b.Errorf(call, device.ErrInvalid, "%s: impossible shape %+v", own.name, shape)
	}
	needs := own.bound.Needs(shape)
	var errs [4]error
	args.Rows, errs[0] = own.cut("rows", args.Rows, shape.Bytes, 1)
	args.Offsets, errs[1] = own.cut("offsets", args.Offsets, 4*(shape.Rows+1), 4)
	args.Scratch, errs[2] = own.cut("scratch", args.Scratch, needs.Scratch, Alignment)
	args.Result, errs[3] = own.cut("result", args.Result, needs.Result, Alignment)
	for _, err := range errs {
		if err != nil {
			return nil, args, err
		}
	}
	return own, args, nil
}

// cut returns the first bytes of one argument's memory.
func (k *Kernel) cut(part string, m device.Memory, bytes int, aligned uint64) (device.Memory, error) {
	if m.Bytes < bytes {
		return m, k.base.Errorf("launch", device.ErrInvalid, "%s: %s has %d bytes, this batch takes %d", k.name, part, m.Bytes, bytes)
	}
	if bytes > 0 && m.Addr%aligned != 0 {
		return m, k.base.Errorf("launch", device.ErrInvalid, "%s: %s at %#x is not aligned to %d", k.name, part, m.Addr, aligned)
	}
	m.Bytes = bytes
	return m, nil
}

// ReadOffsets appends the decoded table to offsets. The rows have the given number of bytes. An offset outside the rows
// is an error here; a GPU would read an illegal address.
func ReadOffsets(offsets []uint32, table []byte, bytes int) ([]uint32, error) {
	var last uint32
	for ; len(table) >= 4; table = table[4:] {
		next := binary.LittleEndian.Uint32(table)
		if next < last || uint64(next) > uint64(bytes) {
			return offsets, fmt.Errorf("offset %d is %d: it must be from %d to %d, the bytes of all rows", len(offsets), next, last, bytes)
		}
		offsets = append(offsets, next)
		last = next
	}
	return offsets, nil
}
