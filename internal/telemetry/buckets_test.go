package telemetry_test

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"millrace/internal/config"
)

// largest returns the maximum that the configuration permits for a field, in the unit of the metric: seconds, bytes or
// payloads.
func largest(t *testing.T, field string) float64 {
	t.Helper()
	f, ok := reflect.TypeFor[config.Config]().FieldByName(field)
	if !ok {
		t.Fatalf("the configuration has no field %s", field)
	}
	text := f.Tag.Get("max")
	if n, err := strconv.Atoi(text); err == nil {
		return float64(n)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds()
	}
	var size config.Size
	if err := size.UnmarshalText([]byte(text)); err != nil {
		t.Fatalf("the bound %q of %s is neither a number nor a duration nor a size", text, field)
	}
	return float64(size)
}

// TestBucketsReachWhatMayBeConfigured: the largest permitted value falls into a finite bucket.
func TestBucketsReachWhatMayBeConfigured(t *testing.T) {
	_, families := observed(t)
	configured := map[string][]string{
		"millrace_batch_payloads":          {"BatchPayloads"},
		"millrace_batch_bytes":             {"BatchBytes"},
		"millrace_frame_records":           {"FrameRecords"},
		"millrace_stage_seconds":           {"BatchDeadlineMax", "Linger"},
		"millrace_payload_latency_seconds": {"BatchDeadlineMax", "Linger", "AckWait"},
		"millrace_ack_headroom_seconds":    {"AckWait"},
	}
	for name, f := range families {
		if f.kind != "histogram" || len(name) < len("millrace_") || name[:len("millrace_")] != "millrace_" {
			continue
		}
		fields := configured[name]
		if fields == nil {
			t.Errorf("%s: list the fields of the configuration that bound it", name)
		}
		bounds := f.samples[0].bounds
		for _, field := range fields {
			if want, last := largest(t, field), bounds[len(bounds)-1]; last < want {
				t.Errorf("%s ends at %v, and %s may be %v", name, last, field, want)
			}
		}
	}
}
