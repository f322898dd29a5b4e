package streams

import (
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
)

// openSim opens a simulated device that must be closed without leaks.
func openSim(t *testing.T, o sim.Options) *sim.Device {
	t.Helper()
	d, err := sim.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	closeClean(t, d)
	return d
}

// openHost opens a host device that must be closed without leaks.
func openHost(t *testing.T) *host.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 1})
	if err != nil {
		t.Fatal(err)
	}
	closeClean(t, d)
	return d
}

func closeClean(t *testing.T, d device.Device) {
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
}

func onEachDevice(t *testing.T, test func(t *testing.T, d device.Device)) {
	t.Run("host", func(t *testing.T) { test(t, openHost(t)) })
	t.Run("sim", func(t *testing.T) { test(t, openSim(t, sim.Options{})) })
}

func newStream(t *testing.T, d device.Device) device.Stream {
	t.Helper()
	s, err := d.NewStream("s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ok(t, s.Close()) })
	return s
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
