package cuda_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/conformance"
	"millrace/internal/device/conformance/operators"
)

// variantCases returns minhash's cases for each variant that the GPU supports. For other variants there is a skipped
// test with a message in capitals. With MILLRACE_REQUIRE_GPU=1 only a compute capability below 9.0 is an accepted
// reason.
func variantCases(t *testing.T, library string, info device.Info, cases []conformance.Case) []conformance.Case {
	t.Helper()
	dev := open(t, library, info)
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	var all []conformance.Case
	for _, name := range operators.Variants() {
		renamed := operators.ForVariant(name, cases)
		k, err := dev.Kernel(name, renamed[0].Params)
		if err != nil {
			t.Run(name, func(t *testing.T) { excuse(t, info, err) })
			continue
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		all = append(all, renamed...)
	}
	return all
}

// excuse skips the test of a variant that the GPU refused, if the reason is accepted.
func excuse(t *testing.T, info device.Info, err error) {
	t.Helper()
	if !errors.Is(err, device.ErrUnavailable) {
		t.Fatal(err)
	}
	if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" && computeMajor(t, info) >= 9 {
		t.Fatalf("COMPUTE CAPABILITY %s HAS THIS VARIANT: %v", info.Compute, err)
	}
	t.Skipf("NOT TESTED: GPU %s HAS NOT WHAT THIS VARIANT NEEDS: %v", info.ID, err)
}

func computeMajor(t *testing.T, info device.Info) int {
	t.Helper()
	text, _, _ := strings.Cut(info.Compute, ".")
	major, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("compute capability %q: %v", info.Compute, err)
	}
	return major
}
