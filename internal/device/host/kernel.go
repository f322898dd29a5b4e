package host

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"millrace/internal/device"
	"millrace/internal/device/memory"
)

// kernel is an operator in Go with its parameters.
type kernel struct {
	dev    *Device
	name   string
	bound  device.BoundHostKernel
	closed atomic.Bool
}

// Kernel implements device.Device.
func (d *Device) Kernel(name string, params []byte) (device.Kernel, error) {
	const call = "kernel"
	if err := d.usable(call); err != nil {
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
	k := &kernel{dev: d, name: name, bound: bound}
	if err := d.register(call, k); err != nil {
		return nil, err
	}
	return k, nil
}

// Name implements device.Kernel.
func (k *kernel) Name() string { return k.name }

// Needs implements device.Kernel. Every batch is wanted in place: what a copy moves stays in the same memory chips,
// so nothing computes faster for it and a core loses the time.
func (k *kernel) Needs(shape device.Shape) device.Needs {
	needs := k.bound.Needs(shape)
	needs.InPlace = true
	return needs
}

func (k *kernel) leak() string { return "kernel " + k.name }

// Close implements device.Kernel.
func (k *kernel) Close() error {
	if k.closed.Swap(true) {
		return nil
	}
	k.dev.unregister(k)
	return k.dev.Err()
}

// Launch implements device.Stream.
func (s *stream) Launch(k device.Kernel, args device.LaunchArgs) error {
	const call = "launch"
	own, ok := k.(*kernel)
	if !ok || own == nil || own.dev != s.dev {
		return s.dev.errorf(call, device.ErrInvalid, "the kernel is not one of this device")
	}
	if own.closed.Load() {
		return s.dev.errorf(call, device.ErrClosed, "kernel %s was closed", own.name)
	}
	args, err := own.fit(args)
	if err != nil {
		return err
	}
	_, err = s.enqueue(call, &op{kind: opLaunch, kernel: own, args: args})
	return err
}

// fit says whether the memory is large enough for the batch, and cuts it to what the batch takes.
func (k *kernel) fit(args device.LaunchArgs) (device.LaunchArgs, error) {
	shape := args.Shape
	if shape.Rows < 0 || shape.Bytes < 0 || shape.Longest < 0 || shape.Longest > shape.Bytes {
		return args, k.dev.errorf("launch", device.ErrInvalid, "%s: impossible shape %+v", k.name, shape)
	}
	needs := k.bound.Needs(shape)
	var errs [4]error
	args.Rows, errs[0] = k.cut("rows", args.Rows, shape.Bytes, 1)
	args.Offsets, errs[1] = k.cut("offsets", args.Offsets, 4*(shape.Rows+1), 4)
	args.Scratch, errs[2] = k.cut("scratch", args.Scratch, needs.Scratch, memory.Alignment)
	args.Result, errs[3] = k.cut("result", args.Result, needs.Result, memory.Alignment)
	for _, err := range errs {
		if err != nil {
			return args, err
		}
	}
	return args, nil
}

// cut is the first bytes of one part of a launch's memory.
func (k *kernel) cut(part string, m device.Memory, bytes int, aligned uint64) (device.Memory, error) {
	if m.Bytes < bytes {
		return m, k.dev.errorf("launch", device.ErrInvalid, "%s: %s has %d bytes, this batch takes %d", k.name, part, m.Bytes, bytes)
	}
	if bytes > 0 && m.Addr%aligned != 0 {
		return m, k.dev.errorf("launch", device.ErrInvalid, "%s: %s at %#x is not aligned to %d", k.name, part, m.Addr, aligned)
	}
	m.Bytes = bytes
	return m, nil
}

// launch runs a kernel on the stream's goroutine. A kernel that fails loses the device, as on a GPU.
func (s *stream) launch(o *op) {
	rows, ok1 := s.resolveMapped("launch", o.args.Rows)
	table, ok2 := s.resolveMapped("launch", o.args.Offsets)
	scratch, ok3 := s.resolve("launch", o.args.Scratch)
	result, ok4 := s.resolveMapped("launch", o.args.Result)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return
	}
	offsets, err := readOffsets(s.offsets[:0], table, len(rows))
	s.offsets = offsets
	if err == nil {
		err = s.dev.runKernel(o.kernel, rows, s.offsets, scratch, result)
	}
	if err != nil {
		s.dev.fault(s.dev.errorf("launch", device.ErrKernelFault, "kernel %s on stream %s: %v", o.kernel.name, s.name, err))
	}
}

// readOffsets appends the table, decoded, to offsets. A table that leads out of the rows is an error here, where a
// GPU would read an illegal address.
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

// runKernel calls the operator and turns a panic of it, on whichever goroutine, into an error.
func (d *Device) runKernel(k *kernel, rows []byte, offsets []uint32, scratch, result []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = asPanic(v)
		}
	}()
	return k.bound.Run(rows, offsets, scratch, result, d.parallel)
}

// kernelPanic is a panic of an operator, with the stack of the goroutine on which it happened.
type kernelPanic struct {
	value any
	stack []byte
}

func (p *kernelPanic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// asPanic wraps what recover returned. It must be called while the stack that panicked still stands.
func asPanic(v any) *kernelPanic {
	if p, ok := v.(*kernelPanic); ok {
		return p
	}
	return &kernelPanic{value: v, stack: debug.Stack()}
}
