//go:build cgo

package devkit

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/testbuild"
)

// root is the repository's root.
const root = "../../../"

// library compiles an operator of the repository for the CPU and opens it. The test skips without a C++ compiler.
func library(t *testing.T, source string) *cpulib.Library {
	t.Helper()
	return libraryOf(t, root+source)
}

// libraryOf is like library for any path.
func libraryOf(t *testing.T, source string) *cpulib.Library {
	t.Helper()
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("SKIPPED: NO OPERATOR OF YOUR OWN IS TESTED WITHOUT A C++ COMPILER")
	}
	output := filepath.Join(t.TempDir(), "operator.cpu.so")
	if err := testbuild.Compile(t.Context(), cpulib.Compile, source, output); err != nil {
		t.Fatal(err)
	}
	l, err := cpulib.Open(output)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// bindAny returns an operator with default parameters.
func bindAny(t *testing.T, d *compiled.Description) *compiled.Operator {
	t.Helper()
	o, err := BindAny(d, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// bind returns an operator with parameters from a spec such as "entropy?bits=5".
func bind(t *testing.T, d *compiled.Description, spec string) *compiled.Operator {
	t.Helper()
	_, query, _ := strings.Cut(spec, "?")
	o, err := d.Bind(query)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func onHost(t *testing.T, kernels ...device.HostKernel) device.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	return opened(t, d, err)
}

func onSim(t *testing.T, kernels ...device.HostKernel) device.Device {
	t.Helper()
	d, err := sim.Open(sim.Options{Kernels: kernels})
	return opened(t, d, err)
}

// opened closes a device at the end of the test. It ignores the close error of a device that an operator lost.
func opened(t *testing.T, d device.Device, err error) device.Device {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lost := d.Err() != nil
		if err := d.Close(); err != nil && !lost {
			t.Error(err)
		}
	})
	return d
}

// runner opens a Runner and closes it at the end of the test.
func runner(t *testing.T, s Subject) *Runner {
	t.Helper()
	r, err := Open(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && s.Device.Err() == nil {
			t.Error(err)
		}
	})
	return r
}
