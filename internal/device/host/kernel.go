package host

import (
	"fmt"
	"runtime/debug"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// wantInPlace makes kernels ask for every batch in place. A copy would stay in the same memory chips, so it would only
// cost a core's time and make no kernel faster.
func wantInPlace(device.Shape, device.Needs) bool { return true }

// Launch implements device.Stream.
func (s *stream) Launch(k device.Kernel, args device.LaunchArgs) error {
	own, args, err := s.dev.CheckLaunch(k, args)
	if err != nil {
		return err
	}
	_, err = s.enqueue("launch", &op{kind: opLaunch, kernel: own, args: args})
	return err
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
	offsets, err := software.ReadOffsets(s.offsets[:0], table, len(rows))
	s.offsets = offsets
	if err == nil {
		err = s.dev.runKernel(o.kernel, rows, s.offsets, scratch, result)
	}
	if err != nil {
		fault := s.dev.Errorf("launch", device.ErrKernelFault, "kernel %s on stream %s: %v", o.kernel.Name(), s.name, err)
		fault.Operator = o.kernel.Name()
		s.dev.fault(fault)
	}
}

// runKernel calls the operator and turns a panic in it, on any goroutine, into an error.
func (d *Device) runKernel(k *software.Kernel, rows []byte, offsets []uint32, scratch, result []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = asPanic(v)
		}
	}()
	return k.Run(rows, offsets, scratch, result, d.parallel)
}

// kernelPanic is a panic of an operator, with the stack of the goroutine on which it happened.
type kernelPanic struct {
	value any
	stack []byte
}

func (p *kernelPanic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// asPanic wraps a value that recover returned. The deferred function must call it, while the panicking stack still
// exists.
func asPanic(v any) *kernelPanic {
	if p, ok := v.(*kernelPanic); ok {
		return p
	}
	return &kernelPanic{value: v, stack: debug.Stack()}
}
