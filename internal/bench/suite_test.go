package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
)

// TestEveryScheduleHasItsRow pins the row names of the schedules, which users and documents use.
func TestEveryScheduleHasItsRow(t *testing.T) {
	var all []string
	for _, e := range List() {
		all = append(all, e.Group+"/"+e.Name)
		if e.Shows == "" || strings.Contains(e.Shows, "\n") {
			t.Errorf("%s/%s shows %q, want one line", e.Group, e.Name, e.Shows)
		}
	}
	for _, name := range []string{
		"copy/pinned-in", "copy/pinned-out", "copy/pinned-both",
		"schedules/serial", "schedules/double", "schedules/triple", "schedules/chunked", "schedules/events", "schedules/host-sync",
		"schedules/warp-specialized", "schedules/cluster", "schedules/event-timing",
		"streams/lanes", "streams/legacy-default", "streams/per-thread-default", "streams/non-blocking",
		"alloc/preallocated", "alloc/synchronous", "alloc/async-0", "alloc/async-kept",
		"completion/polling", "completion/blocking-event", "completion/host-function",
		"operators/crc32c-kernel", "operators/minhash-pipeline", "operators/both-append", "operators/minhash-ragged",
		"operators/host-cpu", "operators/devices", "latency/streams", "latency/persistent",
	} {
		if !slices.Contains(all, name) {
			t.Errorf("there is no row %s", name)
		}
	}
	if sorted := slices.Sorted(slices.Values(all)); len(slices.Compact(sorted)) != len(all) {
		t.Error("two rows of a group have one name")
	}
	want := []string{"copy", "schedules", "streams", "alloc", "completion", "operators", "latency"}
	if !slices.Equal(Groups(), want) {
		t.Errorf("groups are %v, want %v", Groups(), want)
	}
}

func TestCheckNamesEveryProblem(t *testing.T) {
	err := Options{
		Groups: []string{"copy", "kopie"}, Rows: []string{"triple", "tripple"}, Bytes: []int{1}, Rounds: -1, Budget: -1, Lanes: 1000,
	}.Check()
	for _, want := range []string{
		`no group "kopie": known are copy, schedules`, `no row "tripple": known are copy/pinned-in`, "a batch of 1 bytes", "--rounds is -1", "--lanes is 1000",
		"--seconds is -1e-09: give more than 0",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	o := tiny()
	o.Groups, o.Rows = []string{"latency"}, []string{"streams", "schedules/serial"}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
}

func TestRunRefusesWhatCheckRefuses(t *testing.T) {
	if _, err := Run(t.Context(), tiny()); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("without a device: %v", err)
	}
	o := tiny(openHost(t))
	o.Groups = []string{"none"}
	if _, err := Run(t.Context(), o); err == nil {
		t.Error("an unknown group is measured")
	}
}

// openHost opens a host device with every kernel that rows need. The test fails if the device leaks anything.
func openHost(t *testing.T, faulty ...device.HostKernel) device.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: hostKernels(faulty...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var leak *device.LeakError
		if err := d.Close(); errors.As(err, &leak) || err != nil && !errors.Is(err, device.ErrLost) {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}
