//go:build cgo

package cuda

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"

	"millrace/internal/device"
)

// opUnload is the name of the call that unloads an operator.
const opUnload = "unload operator"

// modules holds the loaded operators of a device.
type modules struct {
	mu     sync.RWMutex // held for writing to load and to unload
	byName map[string]*module
}

// module is a loaded operator.
type module struct {
	object
	name        string
	op          operatorHandle
	description []byte
}

// LoadOperator implements device.Loader.
func (d *gpu) LoadOperator(image []byte) (device.Module, error) {
	return d.load("load operator", func() (operatorHandle, string, []byte, error) { return d.lib.operatorLoad(d.handle, image) })
}

// LoadLibrary implements device.Loader.
func (d *gpu) LoadLibrary(path string) (device.Module, error) {
	const op = "load library"
	if strings.ContainsRune(path, 0) {
		return nil, d.errorf(op, device.ErrInvalid, "the path %q contains a zero byte", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, d.errorf(op, device.ErrInvalid, "%v", err)
	}
	return d.load(op, func() (operatorHandle, string, []byte, error) { return d.lib.libraryOpen(d.handle, path) })
}

// load loads an operator with a call of the kernel library, and adds it to the device's.
func (d *gpu) load(op string, call func() (operatorHandle, string, []byte, error)) (device.Module, error) {
	m := &module{}
	err := d.call(op, func() (err error) {
		d.modules.mu.Lock()
		defer d.modules.mu.Unlock()
		if m.op, m.name, m.description, err = call(); err != nil {
			return err
		}
		if d.findOperator(m.name) != nil {
			_ = d.checked(d.lib.operatorUnload(m.op)) // the name is the failure to report
			return d.errorf(op, device.ErrInvalid, "there is an operator %q already: give this one another name", m.name)
		}
		d.modules.byName[m.name] = m
		m.leak = func() string { return "" }                                                        // it belongs to the device
		d.add(&m.object, "operator "+m.name, 1, func() error { return d.lib.operatorUnload(m.op) }) // after its kernels
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// findOperator returns the operator with that name, or nil. The caller holds d.modules.mu.
func (d *gpu) findOperator(name string) operatorHandle {
	if op := d.lib.findOperator(name); op != nil {
		return op
	}
	if m := d.modules.byName[name]; m != nil {
		return m.op
	}
	return nil
}

func (m *module) Name() string        { return m.name }
func (m *module) Description() []byte { return m.description }

// Close implements device.Module.
func (m *module) Close() error {
	d := m.d
	if !d.hold() {
		return nil
	}
	defer d.release()
	if err := d.locked(opUnload, &d.modules.mu); err != nil {
		return err
	}
	defer d.modules.mu.Unlock()
	if m.closed.Load() {
		return nil
	}
	err := d.bounded(opUnload, m.free)
	if errors.Is(err, device.ErrInvalid) {
		return err // it is in use
	}
	m.closed.Store(true)
	delete(d.modules.byName, m.name)
	d.remove(&m.object)
	return err
}
