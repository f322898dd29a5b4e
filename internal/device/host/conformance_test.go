package host_test

import (
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/conformance"
	"millrace/internal/device/conformance/operators"
	"millrace/internal/device/host"
	"millrace/internal/operator"
)

func TestConformance(t *testing.T) {
	cases, err := operators.Cases(1)
	if err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, func(t *testing.T) device.Device {
		d, err := host.Open(host.Options{Cores: 4, Kernels: operator.HostKernels()})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}, cases...)
}
