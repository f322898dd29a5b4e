package host_test

import (
	"strings"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/conformance"
	"millrace/internal/device/conformance/operators"
	"millrace/internal/device/host"
	"millrace/internal/operator"
)

// isCheap reports whether a case is quick. The slow ones run in package operator with the same kernels; here it's about the device, which
// divides large records of crc32c and of the smallest minhash.
func isCheap(spec string, set corpus.Set) bool {
	bytes := 0
	for _, payload := range set.Payloads {
		bytes += len(payload)
	}
	return bytes < 100<<10 || spec == "crc32c" || strings.HasPrefix(spec, "minhash?k=1&")
}

func TestConformance(t *testing.T) {
	cases, err := operators.Cases(1, isCheap)
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
