package software

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime/debug"
	"sync/atomic"

	"millrace/internal/device"
)

// Kernel is an operator in Go with its parameters. It implements device.Kernel.
type Kernel struct {
	dev    *Device
	name   string
	bound  device.BoundHostKernel
	closed atomic.Bool
}

// Kernel implements device.Device.
func (d *Device) Kernel(name string, params []byte) (device.Kernel, error) {
	const call = "kernel"
	if err := d.checkUsable(call); err != nil {
		return nil, err
	}
	source, ok := d.kernels[name]
	if !ok {
		return nil, d.errorf(call, device.ErrNotFound, "no operator is called %q", name)
	}
	bound, err := source.Bind(params)
	if err != nil {
		return nil, d.errorf(call, device.ErrInvalid, "operator %s: %v", name, err)
	}
	k := &Kernel{dev: d, name: name, bound: bound}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.add(call, k); err != nil {
		return nil, err
	}
	return k, nil
}

// Name implements device.Kernel.
func (k *Kernel) Name() string { return k.name }

// Needs implements device.Kernel.
func (k *Kernel) Needs(shape device.Shape) device.Needs {
	needs := k.bound.Needs(shape)
	needs.InPlace = k.dev.o.InPlace(shape, needs)
	return needs
}

func (k *Kernel) leak() string { return "kernel " + k.name }

// Close implements device.Kernel. On a lost device it frees the kernel and returns the loss.
func (k *Kernel) Close() error {
	if k.closed.Swap(true) {
		return nil
	}
	k.dev.Mu.Lock()
	defer k.dev.Mu.Unlock()
	delete(k.dev.open, k)
	return k.dev.Err()
}

// checkLaunch returns k as an open kernel of this device, and the arguments with their memory cut to the batch's size.
// It fails if the memory is too small or not aligned, or if the shape is impossible.
func (d *Device) checkLaunch(k device.Kernel, args device.LaunchArgs) (*Kernel, device.LaunchArgs, error) {
	const call = "launch"
	own, ok := k.(*Kernel)
	if !ok || own == nil || own.dev != d {
		return nil, args, d.errorf(call, device.ErrInvalid, "the kernel is not one of this device")
	}
	if own.closed.Load() {
		return nil, args, d.errorf(call, device.ErrClosed, "kernel %s was closed", own.name)
	}
	shape := args.Shape
	if shape.Rows < 0 || shape.Rows >= math.MaxInt/4 || shape.Bytes < 0 || shape.Longest < 0 || shape.Longest > shape.Bytes {
		return nil, args, d.errorf(call, device.ErrInvalid, "%s: impossible shape %+v", own.name, shape)
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

// cut shortens the memory of one argument to the given number of bytes. It fails if the memory is too small, or if its
// address isn't a multiple of aligned. part is the name of the argument, for errors.
func (k *Kernel) cut(part string, m device.Memory, bytes int, aligned uint64) (device.Memory, error) {
	if m.Bytes < bytes {
		return m, k.dev.errorf("launch", device.ErrInvalid, "%s: %s has %d bytes, this batch takes %d", k.name, part, m.Bytes, bytes)
	}
	if bytes > 0 && m.Addr%aligned != 0 {
		return m, k.dev.errorf("launch", device.ErrInvalid, "%s: %s at %#x is not aligned to %d", k.name, part, m.Addr, aligned)
	}
	m.Bytes = bytes
	return m, nil
}

// launch runs the kernel of a launch. It returns a panic of the kernel, on any goroutine, as an error.
func (o *Op) launch() (err error) {
	rows, table, scratch, result := o.uses[0].mem, o.uses[1].mem, o.uses[2].mem, o.uses[3].mem
	offsets, err := readOffsets(o.Stream.offsets[:0], table, len(rows))
	o.Stream.offsets = offsets
	if err != nil {
		return err
	}
	if device.Invariants {
		o.mustBeWithin(offsets)
	}
	defer func() {
		if v := recover(); v != nil {
			err = AsPanic(v)
		}
	}()
	return o.Kernel.bound.Run(rows, offsets, scratch, result, o.Stream.dev.o.Parallel)
}

// readOffsets appends the decoded table to offsets. bytes is the size of all rows. An offset outside the rows is an
// error, because a GPU would access an illegal address.
func readOffsets(offsets []uint32, table []byte, bytes int) ([]uint32, error) {
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

// Panic is a panic of an operator, with the stack of the goroutine on which it happened.
type Panic struct {
	value any
	stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// AsPanic wraps a value that recover returned. Call it directly in the deferred function, while the panicking stack
// still exists.
func AsPanic(v any) *Panic {
	if p, ok := v.(*Panic); ok {
		return p
	}
	return &Panic{value: v, stack: debug.Stack()}
}
