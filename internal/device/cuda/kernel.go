//go:build cgo

package cuda

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// kernel is an operator with its parameters. The operator belongs to the library or was loaded.
type kernel struct {
	object
	name     string
	op       operatorHandle
	instance unsafe.Pointer
}

// Kernel implements device.Device.
func (g *gpu) Kernel(name string, params []byte) (device.Kernel, error) {
	const op = "kernel"
	k := &kernel{name: name}
	err := g.call(op, func() (err error) {
		g.modules.mu.RLock() // keeps the operator from being unloaded
		defer g.modules.mu.RUnlock()
		if k.op = g.findOperator(name); k.op == nil {
			return g.errorf(op, device.ErrNotFound, "%s has no operator %q%s", g.lib.path, name, missingAdvice(name))
		}
		if k.instance, err = g.lib.create(k.op, g.info.Ordinal, params); err == nil {
			g.add(&k.object, "kernel "+name, 0, func() error { return g.lib.destroy(k.op, k.instance) })
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// missingAdvice returns what to do if the kernel library lacks an operator and no other file has it.
func missingAdvice(name string) string {
	if slices.ContainsFunc(compiled.BuiltIn(), func(d *compiled.Description) bool { return d.Name == name }) {
		return ", because it is older than this program: build both from one commit (`make -C kernels`), or name the right one in MILLRACE_KERNELS"
	}
	return ", and none with that name was loaded: name the operator's folder in MILLRACE_OPERATOR_PATH"
}

func (k *kernel) Name() string { return k.name }

// Needs implements device.Kernel. It returns zero for an impossible shape. A launch with such a shape fails.
func (k *kernel) Needs(shape device.Shape) device.Needs {
	if !k.d.hold() {
		return device.Needs{}
	}
	defer k.d.release()
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.closed.Load() || shape.Rows < 0 || shape.Bytes < 0 || shape.Longest < 0 {
		return device.Needs{}
	}
	needs, err := k.d.lib.needs(k.op, k.instance, shape)
	if err != nil {
		return device.Needs{}
	}
	return needs
}

// checkLaunch refuses memory that is too small or misaligned. A kernel that used such memory could break the device or
// damage other memory unnoticed.
func (k *kernel) checkLaunch(args *device.LaunchArgs) error {
	shape := args.Shape
	if shape.Rows < 0 || shape.Bytes < 0 || shape.Longest < 0 {
		return k.d.errorf("launch", device.ErrInvalid, "%s: a batch of shape %+v", k.name, shape)
	}
	needs, err := k.d.lib.needs(k.op, k.instance, shape)
	if err != nil {
		return k.d.checked(err)
	}
	for _, part := range [...]struct {
		name  string
		m     device.Memory
		bytes int
		align uint64
	}{
		{"rows", args.Rows, shape.Bytes, 1},
		{"offsets", args.Offsets, 4 * (shape.Rows + 1), 4},
		{"scratch", args.Scratch, needs.Scratch, 256},
		{"result", args.Result, needs.Result, 256},
	} {
		if part.m.Bytes < part.bytes {
			return k.d.errorf("launch", device.ErrInvalid, "%s: %d bytes of %s, %d needed", k.name, part.m.Bytes, part.name, part.bytes)
		}
		if part.bytes > 0 && part.m.Addr%part.align != 0 {
			return k.d.errorf("launch", device.ErrInvalid, "%s: %s at %#x, not aligned to %d", k.name, part.name, part.m.Addr, part.align)
		}
	}
	return nil
}

// Close implements device.Kernel.
func (k *kernel) Close() error { return k.close("close kernel", k.free) }

// opUnload is the name of the call that unloads an operator.
const opUnload = "unload operator"

// modules holds the loaded operators of a device.
type modules struct {
	mu     sync.RWMutex // locked for writing while an operator is loaded or unloaded
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
func (g *gpu) LoadOperator(image []byte) (device.Module, error) {
	return g.load("load operator", func() (operatorHandle, string, []byte, error) { return g.lib.operatorLoad(g.handle, image) })
}

// LoadLibrary implements device.Loader.
func (g *gpu) LoadLibrary(path string) (device.Module, error) {
	const op = "load library"
	if strings.ContainsRune(path, 0) {
		return nil, g.errorf(op, device.ErrInvalid, "the path %q contains a zero byte", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, g.errorf(op, device.ErrInvalid, "%v", err)
	}
	return g.load(op, func() (operatorHandle, string, []byte, error) { return g.lib.libraryOpen(g.handle, path) })
}

// load loads an operator with a call of the kernel library, and adds the operator to the device.
func (g *gpu) load(op string, call func() (operatorHandle, string, []byte, error)) (device.Module, error) {
	m := &module{}
	err := g.call(op, func() (err error) {
		g.modules.mu.Lock()
		defer g.modules.mu.Unlock()
		if m.op, m.name, m.description, err = call(); err != nil {
			return err
		}
		if g.findOperator(m.name) != nil {
			_ = g.checked(g.lib.operatorUnload(m.op)) // the duplicate name is the failure to report
			return g.errorf(op, device.ErrInvalid, "there is an operator %q already: rename this operator", m.name)
		}
		g.modules.byName[m.name] = m
		m.leak = func() string { return "" }                                                        // not a leak, because it belongs to the device
		g.add(&m.object, "operator "+m.name, 1, func() error { return g.lib.operatorUnload(m.op) }) // freed after its kernels
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// findOperator returns the operator with the given name, or nil. The caller holds g.modules.mu.
func (g *gpu) findOperator(name string) operatorHandle {
	if op := g.lib.findOperator(name); op != nil {
		return op
	}
	if m := g.modules.byName[name]; m != nil {
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
		return err // the operator is in use
	}
	m.closed.Store(true)
	delete(d.modules.byName, m.name)
	d.remove(&m.object)
	return err
}
