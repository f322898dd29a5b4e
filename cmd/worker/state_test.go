package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// sizedDevice is a device whose states have one byte per record and, on a GPU, a mebibyte of pinned memory.
type sizedDevice struct {
	device.Device
	info device.Info
}

func (d sizedDevice) Info() device.Info { return d.info }

func (d sizedDevice) StateBytes(_ string, _ []byte, size device.StateSize) (device.StateMemory, error) {
	m := device.StateMemory{Device: int64(size.Records)}
	if d.info.Kind == "cuda" {
		m.Pinned = 1 << 20
	}
	return m, nil
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
	if s, err := stateSettings(cfg, memory.NewProcess(1<<30, false), []device.Device{gpu(80), gpu(40)}, device.StateMemory{}); err != nil || s.Bytes != 20 || !s.Standby || s.Begin {
		t.Errorf("on GPUs: %+v, %v", s, err)
	}
	m := memory.NewProcess(8<<30, false)
	if err := m.Admit(false, 1<<30, 0); err != nil {
		t.Fatal(err)
	}
	left := m.Payloads * 2
	s, err := stateSettings(cfg, m, []device.Device{sizedDevice{info: device.Info{Kind: "host"}}}, device.StateMemory{})
	if err != nil || s.Bytes != left/2 || m.Payloads != left/4 {
		t.Errorf("on a CPU with %d bytes left: %+v and %d for payloads, %v", left, s, m.Payloads, err)
	}
}

// TestPinnedMemoryOfStatesIsReserved checks a worker with 4 partitions and two GPUs. Each GPU has space for 3 states or for 1.
func TestPinnedMemoryOfStatesIsReserved(t *testing.T) {
	cfg := statefulConfig(t, map[string]string{"STATE_RECORDS": "1000", "PARTITIONS": "4"})
	for _, c := range []struct{ memory, states int64 }{{6000, 4}, {2000, 2}} {
		gpu := sizedDevice{info: device.Info{Kind: "cuda", Memory: c.memory}}
		a := &app{cfg: cfg, devices: []device.Device{gpu, gpu}, memory: memory.NewProcess(1<<30, false)}
		if err := a.openState(); err != nil || a.memory.States != c.states<<20 || a.memory.Pinned != c.states<<20 {
			t.Errorf("with GPUs of %d bytes, %d bytes are reserved for states, %v; want %d MiB", c.memory, a.memory.States, err, c.states)
		}
	}
}

func TestTooLargeStatesAreAUsageError(t *testing.T) {
	a := &app{cfg: statefulConfig(t, map[string]string{"STATE_BYTES": "2GiB"}), devices: []device.Device{sizedDevice{}}, memory: memory.NewProcess(1<<30, false)}
	if err := a.openState(); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "2048 MiB for states") || !strings.Contains(err.Error(), "MILLRACE_STATE_BYTES") {
		t.Errorf("error %v, want a usage error about 2 GiB of states", err)
	}
}

// TestCheckComparesStatesWithMemory runs check without a server, and with a server whose result stream lacks settings for states.
func TestCheckComparesStatesWithMemory(t *testing.T) {
	t.Parallel()
	env := []string{"MILLRACE_OPERATORS=neardup", "MILLRACE_DELIVERY=exclusive", "MILLRACE_MEMORY_LIMIT=4GiB", "MILLRACE_DATA_DIR=."}
	call(t, env, "check").want(t, exitDone, "MiB for states", "warning  states of operator neardup: the state of a partition takes ", "run at least ")
	call(t, append(env, "MILLRACE_STATE_BYTES=1MiB"), "check").want(t, exitFailed, "error    states of operator neardup", "set MILLRACE_STATE_BYTES to at least ")
	call(t, append(env, "MILLRACE_STATE_BYTES=4GiB"), "check").want(t, exitFailed, "error    memory for states: the memory limit is 4096 MiB")
	s := serve(t)
	env = append(env, "MILLRACE_NATS_URL="+s.URL(), "MILLRACE_STATE_RECORDS=1000")
	if _, err := client(t, s).CreateStream(t.Context(), jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	call(t, env, "check").want(t, exitFailed, "error    stream RESULTS: can delete the log of the state of operator neardup", "--allow-msg-ttl",
		"and the state of operator neardup needs exactly once", "ok       states of operator neardup")
}

// TestPermissionsOfStates runs two workers, one after the other. They have the documented permissions and the permission to purge results.
// The second worker reads the logs of the first worker.
func TestPermissionsOfStates(t *testing.T) {
	t.Parallel()
	const trim = `"$JS.API.CONSUMER.LIST.INGEST", "$JS.API.STREAM.PURGE.INGEST"`
	text := documented(t)
	if strings.Count(text, trim) != 1 {
		t.Fatalf("docs/security.md has %d users with %s", strings.Count(text, trim), trim)
	}
	s, as := serverOf(t, strings.Replace(text, trim, trim+`, "$JS.API.STREAM.PURGE.RESULTS"`, 1))
	_, admin := as("admin")
	provision(t, admin, true)
	results, err := admin.Stream(t.Context(), "RESULTS")
	if err != nil {
		t.Fatal(err)
	}
	c := results.CachedInfo().Config
	c.AllowMsgTTL = true
	if _, err := admin.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	env := []string{"MILLRACE_NATS_URL=nats://exclusive:exclusive-password@" + s.Addr().String(), "MILLRACE_OPERATORS=neardup", "MILLRACE_STATE_RECORDS=1000",
		"MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=2", "MILLRACE_BATCH_BYTES=64KiB", "MILLRACE_LOG_FORMAT=json", "MILLRACE_HTTP_ADDR=127.0.0.1:0"}
	_, publisher := as("publisher")
	for round := range 2 {
		p := start(t, env)
		p.await(`"msg":"working"`)
		for i := range 50 {
			if _, err := publisher.Publish(t.Context(), fmt.Sprint("ingest.", i%5), fmt.Appendf(nil, "%x", sha256.Sum256([]byte{byte(i)}))); err != nil {
				t.Fatal(err)
			}
		}
		metrics := address(t, p, "serving metrics and health") + "metrics"
		awaitBody(t, metrics, `millrace_messages_total{outcome="published"} 50`)
		awaitBody(t, metrics, fmt.Sprintf(`millrace_state_records %d`, 50*(round+1)))
		awaitBody(t, metrics, fmt.Sprintf(`millrace_state_decisions_total{outcome="duplicate"} %d`, 50*round))
		if code := p.terminate(); code != exitDone {
			t.Errorf("exit status %d after SIGTERM, want 0", code)
		}
		if strings.Contains(strings.ToLower(p.text()), "permissions violation") {
			t.Errorf("the worker lacks a permission:\n%s", p.text())
		}
	}
}
