package sim

import (
	"errors"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// Launch implements device.Stream. A kernel that fails while it runs loses the device.
func (s *Stream) Launch(k device.Kernel, args device.LaunchArgs) error {
	const call = "launch"
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable(call); err != nil {
		return err
	}
	own, args, err := d.CheckLaunch(k, args)
	if err != nil {
		return err
	}
	d.counts.launches++
	n := d.counts.launches
	if _, refused := d.match(LaunchFailure, n); refused {
		return d.Errorf(call, device.ErrLaunch, "%s: injected", own.Name())
	}
	_, loses := d.match(DeviceLoss, n)
	rows, offsets := d.useMapped(args.Rows), d.useMapped(args.Offsets)
	scratch, result := d.useDevice(args.Scratch), d.useMapped(args.Result)
	s.enqueue(&op{
		kind: Launch, name: own.Name(), bytes: args.Shape.Bytes, uses: []use{rows, offsets, scratch, result},
		effect: func() error {
			if loses {
				return errors.New("injected loss")
			}
			return d.execute(own, args.Shape, rows.data, offsets.data, scratch.data, result.data)
		},
	})
	return nil
}

// execute runs a kernel. An error loses the device. The caller holds the lock, so only one kernel runs at a time.
func (d *Device) execute(k *software.Kernel, shape device.Shape, rows, table, scratch, result []byte) (err error) {
	if d.offsets, err = software.ReadOffsets(d.offsets[:0], table, shape.Bytes); err != nil {
		return err
	}
	if device.Invariants {
		mustBeWithin(shape, d.offsets)
	}
	if m := d.marker(rows, d.offsets); m != nil {
		return fmt.Errorf("injected loss: a row holds the marker %q", m)
	}
	return k.Run(rows, d.offsets, scratch, result, serial)
}

// mustBeWithin panics if a row is longer than the shape says. A GPU doesn't detect that.
func mustBeWithin(shape device.Shape, offsets []uint32) {
	for i, end := range offsets[1:] {
		if length := int64(end - offsets[i]); length > int64(shape.Longest) {
			panic(fmt.Sprintf("sim: row %d is %d bytes long, the shape says at most %d", i, length, shape.Longest))
		}
	}
}
