package device_test

import (
	"errors"
	"fmt"
	"testing"

	"millrace/internal/device"
)

// TestFailedOperatorIsFoundInAnyError shows that the operator is found even if an outer error doesn't name it.
func TestFailedOperatorIsFoundInAnyError(t *testing.T) {
	unnamed := device.Errorf("launch", "host", device.ErrKernelFault, "bad")
	named := device.Attribute(unnamed, "entropy")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nil":             {nil, ""},
		"other":           {errors.New("other"), ""},
		"unnamed":         {unnamed, ""},
		"named":           {named, "entropy"},
		"wrapped":         {fmt.Errorf("batch 1: %w", named), "entropy"},
		"joined":          {errors.Join(unnamed, named), "entropy"},
		"joined, wrapped": {fmt.Errorf("batch 1: %w", errors.Join(errors.New("other"), unnamed, fmt.Errorf("again: %w", named))), "entropy"},
		"inside another":  {&device.Error{Op: "submit", Kind: errors.Join(unnamed, named)}, "entropy"},
		"none of two":     {errors.Join(unnamed, errors.New("other")), ""},
	} {
		if got := device.FailedOperator(c.err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
