package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"millrace/internal/device"
	"millrace/internal/device/memory"
)

// Kernel is a device.Kernel that runs in Go.
type Kernel struct {
	dev    *Device
	name   string
	run    device.BoundHostKernel
	closed bool
}

// Kernel implements device.Device.
func (d *Device) Kernel(name string, params []byte) (device.Kernel, error) {
	const call = "bind kernel"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(call); err != nil {
		return nil, err
	}
	h, ok := d.kernels[name]
	if !ok {
		return nil, device.Errorf(call, d.info.ID, device.ErrNotFound, "no operator is called %q", name)
	}
	run, err := h.Bind(slices.Clone(params))
	if err != nil {
		return nil, fmt.Errorf("device %s: %s %s: %w", d.info.ID, call, name, err)
	}
	k := &Kernel{dev: d, name: name, run: run}
	d.bound[k] = struct{}{}
	return k, nil
}

// Name implements device.Kernel.
func (k *Kernel) Name() string { return k.name }

// Needs implements device.Kernel.
func (k *Kernel) Needs(s device.Shape) device.Needs {
	n := k.run.Needs(s)
	n.InPlace = s.Bytes+n.Result <= k.dev.inPlace
	return n
}

// Close implements device.Kernel. On a lost device it gives the kernel back and returns ErrLost.
func (k *Kernel) Close() error {
	d := k.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if k.closed || d.closed {
		return nil
	}
	k.closed = true
	delete(d.bound, k)
	return d.usable("close kernel")
}

// kernel checks that k is an open kernel of this device. The lock is held.
func (d *Device) kernel(call string, k device.Kernel) (*Kernel, error) {
	mine, ok := k.(*Kernel)
	if !ok || mine == nil || mine.dev != d {
		return nil, d.invalid(call, "the kernel is not of this device")
	}
	if mine.closed {
		return nil, device.Errorf(call, d.info.ID, device.ErrClosed, "kernel %s was closed", mine.name)
	}
	return mine, nil
}

// Launch implements device.Stream. A kernel that fails while it runs loses the device.
func (s *Stream) Launch(k device.Kernel, args device.LaunchArgs) error {
	const call = "launch"
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable(call); err != nil {
		return err
	}
	mine, err := d.kernel(call, k)
	if err != nil {
		return err
	}
	if err := checkLaunch(args, mine.run.Needs); err != nil {
		return d.invalid(call, "%s: %v", mine.name, err)
	}
	d.counts.launches++
	n := d.counts.launches
	if _, refused := d.match(LaunchFailure, n); refused {
		return device.Errorf(call, d.info.ID, device.ErrLaunch, "%s: injected", mine.name)
	}
	_, loses := d.match(DeviceLoss, n)
	rows, offsets := d.useMapped(args.Rows), d.useMapped(args.Offsets)
	scratch, result := d.useDevice(args.Scratch), d.useMapped(args.Result)
	s.enqueue(&op{
		kind: Launch, name: mine.name, bytes: args.Shape.Bytes, uses: []use{rows, offsets, scratch, result},
		effect: func() error {
			if loses {
				return errors.New("injected loss")
			}
			return d.execute(mine, args.Shape, rows.data, offsets.data, scratch.data, result.data)
		},
	})
	return nil
}

// checkLaunch returns why a launch with these arguments cannot be enqueued.
func checkLaunch(a device.LaunchArgs, needs func(device.Shape) device.Needs) error {
	sh := a.Shape
	if sh.Rows < 0 || sh.Bytes < 0 || sh.Longest < 0 || sh.Longest > sh.Bytes {
		return fmt.Errorf("a shape of %d rows, %d bytes, the longest of %d", sh.Rows, sh.Bytes, sh.Longest)
	}
	if sh.Rows >= math.MaxInt/4 || sh.Bytes > math.MaxUint32 {
		return fmt.Errorf("a shape of %d rows and %d bytes: offsets are 32 bits", sh.Rows, sh.Bytes)
	}
	n := needs(sh)
	for _, m := range []struct {
		name    string
		have    device.Memory
		bytes   int
		aligned bool
	}{
		{"rows", a.Rows, sh.Bytes, false},
		{"offsets", a.Offsets, 4 * (sh.Rows + 1), false},
		{"scratch", a.Scratch, n.Scratch, true},
		{"result", a.Result, n.Result, true},
	} {
		if m.have.Bytes < m.bytes {
			return fmt.Errorf("%d bytes of %s: needs %d", m.have.Bytes, m.name, m.bytes)
		}
		if m.aligned && m.have.Addr%memory.Alignment != 0 {
			return fmt.Errorf("%s at %#x: must be aligned to %d", m.name, m.have.Addr, memory.Alignment)
		}
	}
	return nil
}

// execute runs a kernel. An error loses the device. The lock is held, so kernels run one at a time.
func (d *Device) execute(k *Kernel, sh device.Shape, rows, table, scratch, result []byte) error {
	offsets := d.offsets[:0]
	for i := range sh.Rows + 1 {
		offsets = append(offsets, binary.LittleEndian.Uint32(table[4*i:]))
	}
	d.offsets = offsets
	rows = rows[:sh.Bytes]
	if err := checkOffsets(offsets, sh); err != nil {
		return err
	}
	if m := d.marker(rows, offsets); m != nil {
		return fmt.Errorf("injected loss: a row holds the marker %q", m)
	}
	return k.run.Run(rows, offsets, scratch, result, d.parallel)
}

// checkOffsets returns an error if the table leads outside the rows: a GPU would read an illegal address.
// A row longer than the shape says is not seen by a GPU; the invariants build panics.
func checkOffsets(offsets []uint32, sh device.Shape) error {
	for i, end := range offsets[1:] {
		start := offsets[i]
		if start > end || int64(end) > int64(sh.Bytes) {
			return fmt.Errorf("illegal address: row %d is bytes %d to %d of %d", i, start, end, sh.Bytes)
		}
		if device.Invariants && int64(end-start) > int64(sh.Longest) {
			panic(fmt.Sprintf("sim: row %d is %d bytes long, the shape says at most %d", i, end-start, sh.Longest))
		}
	}
	return nil
}
