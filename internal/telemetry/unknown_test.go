package telemetry_test

import (
	"testing"

	"millrace/internal/telemetry"
)

// TestAnUnregisteredDeviceHasTheClockOfTheFirst checks that the batches of a device that was never passed to AddDevice
// are on the first device's time axis.
func TestAnUnregisteredDeviceHasTheClockOfTheFirst(t *testing.T) {
	line := telemetry.NewTimeline(100)
	line.AddDevice("GPU-1", "one", epoch.Add(2*ms))
	line.BatchDone(pipelined("GPU-1", 1, 1)[0])
	line.BatchDone(pipelined("GPU-2", 1, 1)[0])
	events, tracks := traceOf(t, line, 0)
	in := onTrack(events, tracks, "copy_in")
	if len(in) != 2 || in[0].Pid == in[1].Pid || in[0].Ts != in[1].Ts {
		t.Errorf("copies in at the same time by one clock are %+v", in)
	}
}
