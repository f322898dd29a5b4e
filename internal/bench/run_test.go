package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

type renamed struct {
	device.HostKernel
	name string
}

func (r renamed) Name() string { return r.name }

// hostKernels returns all kernels that rows need. The plain kernel implements the variants. A faulty kernel replaces
// the kernel with the same name.
func hostKernels(faulty ...device.HostKernel) []device.HostKernel {
	all := append(operator.HostKernels(), HostKernels()...)
	for _, k := range operator.HostKernels() {
		if k.Name() == "minhash" {
			for _, variant := range []string{"plain", "warp-specialized", "cluster"} {
				all = append(all, renamed{k, "minhash:" + variant})
			}
		}
	}
	for _, f := range faulty {
		i := slices.IndexFunc(all, func(k device.HostKernel) bool { return k.Name() == f.Name() })
		all[i] = f
	}
	return all
}

func openSim(t *testing.T) device.Device {
	t.Helper()
	d, err := sim.Open(sim.Options{Seed: 1, Cost: sim.Units(10 * time.Microsecond), Kernels: hostKernels()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}

// tiny returns options for the smallest possible measurement.
func tiny(devices ...device.Device) Options {
	return Options{
		Devices: devices, Bytes: []int{8 << 10}, Rounds: 2, Budget: 4 * time.Millisecond, Lanes: 2, Seed: 1,
		Pipeline: func(_ device.Info, ops []operator.Operator) streams.Options {
			return streams.Options{Operators: ops, ScratchLimit: 1 << 30}
		},
		Out: io.Discard, Progress: func(string) {},
	}
}

// sessionOn returns a session of the suite schedules that measures d with the options of tiny.
func sessionOn(d device.Device) *Session {
	s := newSession(tiny(d))
	s.suite = scheduleSuite
	s.use(d)
	return s
}

// TestEveryRowRuns checks that every row of every suite has figures or a reason for their absence. The trace must contain every pipeline.
func TestEveryRowRuns(t *testing.T) {
	for name, open := range map[string]func(*testing.T) device.Device{
		"host": func(t *testing.T) device.Device { return openHost(t) },
		"sim":  openSim,
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			o := tiny(d)
			var table, trace bytes.Buffer
			timeline := telemetry.NewTimeline(1 << 12)
			o.Out, o.Trace = &table, timeline
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range List() {
				wantRow(t, r, e, d)
				if !strings.Contains(table.String(), "\n"+e.Name+" ") {
					t.Errorf("the tables do not show %s/%s", e.Group, e.Name)
				}
			}
			i := slices.IndexFunc(r.Rows, func(row report.Row) bool { return row.Group == "schedules" && row.Name == "triple" })
			if i < 0 || r.Rows[i].Stages["copy_in"].N == 0 {
				t.Error("schedules/triple has no copies, so nothing could overlap")
			}
			if err := timeline.WriteTrace(&trace, 0); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"schedules/triple", "alloc/async-kept", "operators/crc32c-append", `"cat":"copy_out"`} {
				if !strings.Contains(trace.String(), want) {
					t.Errorf("the trace does not show %q", want)
				}
			}
		})
	}
}

// mayLack returns the expected reason of a row that the device can't run, or "" if the device must be able to run it.
func mayLack(e Entry, d device.Device) (reason string) {
	switch {
	case e.Name == "devices" && d.Info().Kind == "host":
		return "there is one device, the CPU"
	case e.Name == "devices":
		return "there is one device: name two or more in MILLRACE_DEVICES"
	case e.Name == "persistent" && d.Info().Kind == "sim":
		return "no persistent kernels"
	}
	return ""
}

// wantRow checks that the report contains the complete row.
func wantRow(t *testing.T, r *report.Report, e Entry, d device.Device) {
	t.Helper()
	found := false
	for _, row := range r.Rows {
		if row.Group != e.Group || row.Name != e.Name {
			continue
		}
		found = true
		reason := mayLack(e, d)
		switch {
		case (row.Skipped != "") != (reason != "") || !strings.Contains(row.Skipped, reason):
			t.Errorf("%s/%s was not measured: %s", e.Group, e.Name, row.Skipped)
		case row.Skipped == "" && row.Batches == 0:
			t.Errorf("%s/%s has no batches", e.Group, e.Name)
		case row.Skipped == "" && row.Batch == nil && len(row.Figures) == 0:
			t.Errorf("%s/%s has no figures", e.Group, e.Name)
		case row.Batch != nil && (row.Batch.N != 2 || row.Batch.Median <= 0 || row.Batch.Low > row.Batch.High):
			t.Errorf("%s/%s took %+v per batch over 2 rounds", e.Group, e.Name, *row.Batch)
		}
	}
	if !found {
		t.Errorf("there is no row %s/%s", e.Group, e.Name)
	}
}

// TestFiguresOfTheComparedRows checks that compared rows have the required figures.
func TestFiguresOfTheComparedRows(t *testing.T) {
	o := tiny(openHost(t))
	o.Groups = []string{"schedules", "streams", "alloc", "operators"}
	o.Rows = []string{"triple", "chunked", "host-sync", "lanes", "async-kept", "crc32c-ragged", "crc32c-pipeline", "cluster"}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	knees := 0
	for _, row := range r.Rows {
		for _, want := range map[string][]string{
			"triple": {overSerial.name, ofCeiling.name, overLongest.name}, "chunked": {overWhole.name, pieces.name},
			"host-sync": {blocked.name, inSubmit.name}, "lanes": {overSerial.name}, "cluster": {overPlain.name},
			"async-kept":    {allocation.name, lessAllocation.name, overPreallocated.name},
			"crc32c-ragged": {overUniform.name, kernelRate.name}, "crc32c-pipeline": {ofCeiling.name, ofKernel.name},
		}[row.Name] {
			if f, ok := row.Figure(want); !ok || f.N != 2 {
				t.Errorf("%s/%s has %q %+v, want one of 2 rounds", row.Group, row.Name, want, f)
			}
		}
		if _, ok := row.Figure(knee.name); ok {
			knees++
		}
		if !slices.Contains(o.Rows, row.Name) {
			t.Errorf("row %s/%s was not requested", row.Group, row.Name)
		}
	}
	if knees != 1 {
		t.Errorf("%d rows are the knee, want 1", knees)
	}
	if len(r.Rows) != 7+len(chunkedPieces)+len(laneCounts)-1 {
		t.Errorf("%d rows", len(r.Rows))
	}
}

// TestSeveralDevices checks that two devices share the work, and that each device is also measured separately.
func TestSeveralDevices(t *testing.T) {
	o := tiny(openHost(t), openSim(t))
	o.Rows = []string{"device", "devices"}
	var table bytes.Buffer
	o.Out = &table
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var devices []string
	for _, row := range r.Rows {
		devices = append(devices, row.Device)
		if row.Device == "all" {
			if f, ok := row.Figure(overOne.name); !ok || f.Median <= 0 {
				t.Errorf("the row of all devices has %q %+v", overOne.name, f)
			}
		}
	}
	if !slices.Equal(devices, []string{"host", "sim-1", "all"}) {
		t.Errorf("the rows have the devices %v", devices)
	}
	if !strings.Contains(table.String(), "sim-1") {
		t.Errorf("the table doesn't distinguish the devices:\n%s", table.String())
	}
}

// TestADeviceWithoutTheBalancedKernel uses an old kernel library. Only the rows that need the kernel are missing.
func TestADeviceWithoutTheBalancedKernel(t *testing.T) {
	d, err := host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	o := tiny(d)
	o.Rows = []string{"triple", "devices", "completion/polling"}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var leftOut []string
	for _, row := range r.Rows {
		leftOut = append(leftOut, fmt.Sprintf("%s %v", row.Name, strings.Contains(row.Skipped, `no operator is called "mix"`)))
	}
	if want := []string{"triple true", "polling false", "devices true"}; !slices.Equal(leftOut, want) {
		t.Errorf("rows and whether they were left out are %v, want %v", leftOut, want)
	}
}

// TestADeviceWithoutTheVariants checks a device without kernels to compare. The output must contain a reason instead of
// a table of empty rows.
func TestADeviceWithoutTheVariants(t *testing.T) {
	d, err := host.Open(host.Options{Cores: 2, Kernels: append(operator.HostKernels(), HostKernels()...)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	var out bytes.Buffer
	o := tiny(d)
	o.Bytes = []int{4 << 10, 8 << 10}
	o.Rows, o.Out = []string{"plain", "warp-specialized", "cluster"}, &out
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 6 || r.Rows[0].Skipped == "" {
		t.Errorf("the report has %d rows, want three for each size, with the reason: %+v", len(r.Rows), r.Rows)
	}
	want := "\nschedules: not measured here\n  plain, warp-specialized, cluster on host: -: this compares kernels of a GPU, and device host has none of them\n"
	if out.String() != want {
		t.Errorf("the output is\n%q, want\n%q", out.String(), want)
	}
}

// TestBalanceIsFound checks that the search finds a number of rounds and runs only once.
func TestBalanceIsFound(t *testing.T) {
	d := openHost(t)
	s := sessionOn(d)
	first, err := balanced(t.Context(), s, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	if first.rounds < 1 || first.rounds > maxMixRounds {
		t.Errorf("%d rounds", first.rounds)
	}
	if again, err := balanced(t.Context(), s, 64<<10); err != nil || again != first {
		t.Errorf("the second call gives %v, error %v, want %v", again, err, first)
	}
}

// TestInterrupted checks that an interrupted run reports the interruption and no other error.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := tiny(openHost(t))
	rounds := 0
	o.Progress = func(doing string) {
		if rounds++; rounds == 3 {
			cancel()
		}
	}
	o.Groups = []string{"schedules"}
	if _, err := Run(ctx, o); err == nil || !strings.Contains(fmt.Sprint(err), "interrupted") {
		t.Errorf("the error is %v", err)
	}
}

// TestRefilledBatchesHoldThePayloadsAgain changes the payloads after the first fill. Only a row that refills its
// batches while it measures reads the change.
func TestRefilledBatchesHoldThePayloadsAgain(t *testing.T) {
	for _, refill := range []bool{true, false} {
		s := sessionOn(openHost(t))
		w := &batchWork{s: s, load: newDocuments(Parse("crc32c"), 8<<10, false), drivers: 3, refill: refill}
		w.rig = newRig(s, w.load, workerSchedule(s))
		if err := w.open(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := w.run(t.Context(), w.minTimes()); err != nil { // processes the original payloads
			t.Fatal(err)
		}
		for _, c := range w.load.slots {
			for i := range c.memory {
				c.memory[i] ^= 1
			}
		}
		if _, err := w.run(t.Context(), w.minTimes()); err != nil {
			t.Fatal(err)
		}
		if err := verifyAll(w.held, w.load, 1); (err == nil) != refill {
			t.Errorf("refill %v: the results are of the new payloads: %v", refill, err)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}
}
