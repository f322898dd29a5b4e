//go:build cgo

package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/conformance"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/develop"
	"millrace/internal/operator/testbuild"
)

// root is the repository's root.
const root = "../../../"

// library compiles an operator for the CPU and opens it. Without a C++ compiler it skips the test.
func library(t *testing.T, source string) *cpulib.Library {
	t.Helper()
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("SKIPPED: NO OPERATOR OF YOUR OWN IS TESTED WITHOUT A C++ COMPILER")
	}
	output := filepath.Join(t.TempDir(), "operator.cpu.so")
	if err := testbuild.Compile(t.Context(), develop.Compile, root+source, output); err != nil {
		t.Fatal(err)
	}
	l, err := cpulib.Open(output)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mostTable is the maximum size of a table in these tests, in bytes. BindAny repeats the same few words, and the time that keywords takes
// grows with how often each is in its table.
const mostTable = 512

// bindAny returns an operator with its default parameters, and with smaller tables than those of BindAny.
func bindAny(t *testing.T, d *compiled.Description) *compiled.Operator {
	t.Helper()
	folder := t.TempDir()
	o, err := conformance.BindAny(d, folder)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := os.ReadDir(folder)
	if err != nil || len(tables) == 0 {
		return o
	}
	var query []string
	for _, table := range tables {
		name := table.Name()
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err != nil || info.Size() > mostTable && os.Truncate(path, mostTable) != nil {
			t.Fatalf("the table %s can't be made smaller: %v", path, err)
		}
		query = append(query, name+"="+name)
	}
	return bind(t, d, "?"+strings.Join(query, "&"))
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

// opened closes a device at the end of the test. A device that an operator lost can't say what is open.
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

// runner opens a Runner that is closed at the end of the test.
func runner(t *testing.T, s conformance.Subject) *conformance.Runner {
	t.Helper()
	r, err := conformance.Open(s)
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
