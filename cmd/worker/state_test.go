package main

import (
	"strings"
	"testing"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
)

// statefulOperator is a stateful operator whose keys are signatures of minhash.
type statefulOperator struct{ operator.Operator }

func (statefulOperator) Name() string { return "stateful" }

func (s statefulOperator) Kernel() operator.Operator { return s.Operator }

// Err implements operator.Source.
func (statefulOperator) Err() error { return nil }

// Bind implements operator.Source.
func (s statefulOperator) Bind(string) (operator.Operator, error) { return s, nil }

// statefulConfig returns a configuration with a stateful operator, whose kernel has results of 160 bytes.
func statefulConfig(t *testing.T, env map[string]string) *config.Config {
	t.Helper()
	t.Setenv("MILLRACE_OPERATORS", "stateful")
	t.Setenv("MILLRACE_DELIVERY", "exclusive")
	for name, value := range env {
		t.Setenv("MILLRACE_"+name, value)
	}
	cfg, err := config.Load(func(*config.Config) ([]operator.Source, error) {
		kernel, err := operator.Parse("minhash?hashes=40")
		return []operator.Source{statefulOperator{kernel}}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// sizedDevice is a device with states of one byte per record.
type sizedDevice struct {
	device.Device
	info device.Info
}

func (d sizedDevice) Info() device.Info { return d.info }

func (sizedDevice) StateBytes(_ string, _ []byte, size device.StateSize) (int64, error) {
	return int64(size.Records), nil
}

func TestSettingsOfStatesReachTheWorker(t *testing.T) {
	cfg := statefulConfig(t, map[string]string{"STATE_RECORDS": "1000", "STATE_BYTES": "3MiB", "STATE_LOST": "begin", "STATE_STANDBY": "false", "PARTITIONS": "4"})
	host := []device.Device{sizedDevice{info: device.Info{Kind: "host"}}}
	a := &app{cfg: cfg, devices: host, memory: memory.NewProcess(1<<30, false)}
	if err := a.openState(); err != nil {
		t.Fatal(err)
	}
	if want := (lease.StateOptions{Operator: a.state.Operator, Records: 1000, Bytes: 3 << 20, Begin: true}); *a.state != want {
		t.Errorf("settings %+v, want %+v", *a.state, want)
	}
	if want := (topology.States{Partition: 1000, Memory: 3 << 20, Devices: 1, Log: 2 * 1000 * (160 + rowBytes)}); a.states != want {
		t.Errorf("sizes %+v, want %+v", a.states, want)
	}
	o := ingestOptions(cfg, nil, nil, nil)
	if added := o.Kept.Results.MaxBytes - int64(cfg.ResultMaxBytes); o.Stateful != "stateful" || added < 4*a.states.Log || added > 4*a.states.Log+1<<10 {
		t.Errorf("operator %q, and the result stream has %d bytes for the logs of 4 partitions of %d", o.Stateful, added, a.states.Log)
	}
}

// TestMemoryOfStatesIsHalf shows the default of MILLRACE_STATE_BYTES on CPUs and GPUs.
func TestMemoryOfStatesIsHalf(t *testing.T) {
	cfg := statefulConfig(t, nil)
	gpu := func(bytes int64) device.Device { return sizedDevice{info: device.Info{Kind: "cuda", Memory: bytes}} }
	if s, err := stateSettings(cfg, memory.NewProcess(1<<30, false), []device.Device{gpu(80), gpu(40)}); err != nil || s.Bytes != 20 || !s.Standby || s.Begin {
		t.Errorf("on GPUs: %+v, %v", s, err)
	}
	m := memory.NewProcess(8<<30, false)
	if err := m.Admit(false, 1<<30, 0); err != nil {
		t.Fatal(err)
	}
	left := m.Payloads * 2
	s, err := stateSettings(cfg, m, []device.Device{sizedDevice{info: device.Info{Kind: "host"}}})
	if err != nil || s.Bytes != left/2 || m.Payloads != left/4 {
		t.Errorf("on a CPU with %d bytes left: %+v and %d for payloads, %v", left, s, m.Payloads, err)
	}
}

func TestTooLargeStatesAreAUsageError(t *testing.T) {
	a := &app{cfg: statefulConfig(t, map[string]string{"STATE_BYTES": "2GiB"}), devices: []device.Device{sizedDevice{}}, memory: memory.NewProcess(1<<30, false)}
	if err := a.openState(); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "2048 MiB for states") || !strings.Contains(err.Error(), "MILLRACE_STATE_BYTES") {
		t.Errorf("error %v, want a usage error about 2 GiB of states", err)
	}
}
