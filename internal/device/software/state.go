package software

import "millrace/internal/device"

// state is a device.State of the device. Its operations don't depend on the clock: they take no virtual time.
type state struct {
	device.State
	dev *Device
}

// NewState implements device.Device.
func (d *Device) NewState(name string, params []byte, size device.StateSize) (device.State, error) {
	const call = "new state"
	k, err := d.stateKernel(call, name, params)
	if err != nil {
		return nil, err
	}
	kept, err := k.NewState(size)
	if err != nil {
		return nil, d.errorf(call, device.ErrInvalid, "operator %s: %v", name, err)
	}
	s := &state{State: kept, dev: d}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.add(call, s); err != nil {
		return nil, err
	}
	return s, nil
}

// StateBytes implements device.Device.
func (d *Device) StateBytes(name string, params []byte, size device.StateSize) (m device.StateMemory, err error) {
	const call = "state bytes"
	k, err := d.stateKernel(call, name, params)
	if err != nil {
		return m, err
	}
	if m.Device, err = k.StateBytes(size); err != nil {
		return m, d.errorf(call, device.ErrInvalid, "operator %s: %v", name, err)
	}
	return m, nil
}

func (d *Device) stateKernel(call, name string, params []byte) (device.StateHostKernel, error) {
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
	k, ok := bound.(device.StateHostKernel)
	if !ok {
		return nil, d.errorf(call, device.ErrNotFound, "operator %s has no state", name)
	}
	return k, nil
}

func (s *state) leak() string { return "a state" }

// Apply implements device.State.
func (s *state) Apply(positions []device.Position, keys []byte) (device.Decisions, error) {
	if err := s.dev.checkUsable("apply"); err != nil {
		return nil, err
	}
	return s.State.Apply(positions, keys)
}

// Undo implements device.State.
func (s *state) Undo() error {
	if err := s.dev.checkUsable("undo"); err != nil {
		return err
	}
	return s.State.Undo()
}

// Replay implements device.State.
func (s *state) Replay(entry []byte) error {
	if err := s.dev.checkUsable("replay"); err != nil {
		return err
	}
	return s.State.Replay(entry)
}

// Close implements device.State. A second Close returns nil.
func (s *state) Close() error {
	s.dev.Mu.Lock()
	_, open := s.dev.open[s]
	delete(s.dev.open, s)
	s.dev.Mu.Unlock()
	if !open {
		return nil
	}
	return s.State.Close()
}
