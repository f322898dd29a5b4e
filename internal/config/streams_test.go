package config_test

import (
	"strings"
	"testing"
)

// TestValuesThatAreTheDefaultAreNotChanged shows that a variable with its default value is not changed. A Helm chart
// sets every variable.
func TestValuesThatAreTheDefaultAreNotChanged(t *testing.T) {
	c := good(t, map[string]string{"MILLRACE_RESULT_MAX_AGE": "168h", "MILLRACE_RESULT_MAX_BYTES": "4096MiB", "MILLRACE_STREAM_MAX_BYTES": "5GiB"})
	for variable, want := range map[string]bool{
		"MILLRACE_RESULT_MAX_AGE": false, "MILLRACE_RESULT_MAX_BYTES": false, "MILLRACE_STREAM_MAX_BYTES": true, "MILLRACE_STREAM_MAX_AGE": false,
	} {
		if got := c.IsChanged(variable); got != want {
			t.Errorf("IsChanged(%s) = %v, want %v", variable, got, want)
		}
	}
}

// TestAnInputStreamThatKeepsProcessedInputsFills shows that with limits retention and discard new, only the maximum age
// frees space.
func TestAnInputStreamThatKeepsProcessedInputsFills(t *testing.T) {
	for _, tc := range []struct {
		more map[string]string
		want bool
	}{
		{map[string]string{}, true},
		{map[string]string{"MILLRACE_STREAM_MAX_AGE": "24h"}, false},
		{map[string]string{"MILLRACE_STREAM_MAX_BYTES": "0"}, false},
	} {
		tc.more["MILLRACE_STREAM_RETENTION"] = "limits"
		warnings := strings.Join(good(t, tc.more).Warnings(), "\n")
		if got := strings.Contains(warnings, "refuses new ones when it holds 4GiB"); got != tc.want {
			t.Errorf("%v: the warnings are %q", tc.more, warnings)
		}
	}
}
