package memory

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestFind(t *testing.T) {
	t.Parallel()
	const machine = 16 << 30
	type found struct {
		bytes  int64
		source string
	}
	fails := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	half := found{machine / 2, "half of the machine's memory"}
	for name, c := range map[string]struct {
		cgroup, machine memlimit.Provider
		want            found
	}{
		"a limit":                     {memlimit.Limit(4 << 30), memlimit.Limit(machine), found{4 << 30, "cgroup"}},
		"a limit above the machine's": {memlimit.Limit(64 << 30), memlimit.Limit(machine), half},
		"no limit":                    {fails(memlimit.ErrNoLimit), memlimit.Limit(machine), half},
		"no cgroup":                   {fails(memlimit.ErrNoCgroup), memlimit.Limit(machine), half},
		"no Linux":                    {fails(memlimit.ErrCgroupsNotSupported), memlimit.Limit(machine), half},
		"an unreadable limit":         {fails(errors.New("broken")), memlimit.Limit(machine), found{half.bytes, half.source + "; the cgroup's limit is unknown: broken"}},
		"an unknown system":           {fails(memlimit.ErrCgroupsNotSupported), fails(memlimit.ErrNoLimit), found{0, "unknown on this system"}},
	} {
		if bytes, source := find(c.cgroup, c.machine); (found{bytes, source}) != c.want {
			t.Errorf("%s: %d bytes, %s; want %+v", name, bytes, source, c.want)
		}
	}
	// A test in internal/faults runs the worker under a real limit.
	if p := NewProcess(0, true); p.Limit < 1<<20 || p.Source == "MILLRACE_MEMORY_LIMIT" || p.Buffers != embeddedServer {
		t.Errorf("on this machine, with the embedded server: %+v", p)
	}
	if p := NewProcess(3<<30, false); p.Limit != 3<<30 || p.Source != "MILLRACE_MEMORY_LIMIT" || p.Buffers != 0 {
		t.Errorf("with a limit that the user has set: %+v", p)
	}
}

// process returns a process with the given limit and no admitted pipelines.
func process(limit int64) *Process {
	return &Process{Limit: limit, Source: "cgroup /x", goMemLimit: unset}
}

func TestAdmitSubtractsFixedMemory(t *testing.T) {
	t.Parallel()
	for goMemLimit, want := range map[int64]int64{unset: 512 - 32, 300 * mib: 300} {
		p := process(512 * mib)
		p.goMemLimit = goMemLimit
		if err := p.Admit(false, 60*mib, 40*mib); err != nil {
			t.Fatal(err)
		}
		if p.Buffers != 100*mib || p.GoRuntime != want*mib || p.Payloads != (want-100-program/mib)/2*mib {
			t.Errorf("with GOMEMLIMIT=%d: %+v, want a limit of %d MiB for the runtime", goMemLimit, p, want)
		}
	}
	p := process(0)
	if err := p.Admit(false, 1<<40, 0); err != nil || p.GoRuntime != 0 || p.Payloads != 0 {
		t.Errorf("without a limit: %+v, %v", p, err)
	}
}

// TestPinnedMemoryCountsAgainstTheLimit admits two pipelines on GPUs. Together, their pinned memory exceeds the limit, although it is
// outside Go's heap. Device memory doesn't count.
func TestPinnedMemoryCountsAgainstTheLimit(t *testing.T) {
	t.Parallel()
	p := process(2 << 30)
	if err := p.Admit(true, 900*mib, 16<<30); err != nil {
		t.Fatalf("the first pipeline: %v", err)
	}
	if p.Pinned != 900*mib || p.Buffers != 900*mib+cuda || p.GoRuntime != 2<<30-2<<30/16-900*mib-cuda {
		t.Errorf("with one pipeline: %+v", p)
	}
	if err := p.Admit(true, 900*mib, 0); err == nil || !strings.Contains(err.Error(), "2048 MiB (cgroup /x)") {
		t.Errorf("the second pipeline: %v, want an error that names the limit", err)
	}
	if p.Buffers != 1800*mib+cuda+cudaMore || p.Payloads != 0 {
		t.Errorf("with two pipelines: %+v", p)
	}
}

// TestErrorOfAdmitNamesASufficientLimit checks that the limit in the error is sufficient, and that 8 MiB less isn't sufficient.
func TestErrorOfAdmitNamesASufficientLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, device int64 }{{}, {68 * mib, 0}, {0, 537 * mib}, {4096 * mib, 900 * mib}} {
		p := process(64 * mib)
		err := p.Admit(false, c.host, c.device)
		if err == nil {
			t.Fatalf("%+v: no error", c)
		}
		need := p.need()
		for _, text := range []string{"64 MiB", "cgroup /x", fmt.Sprintf("need %d MiB", ceil(need)), "MILLRACE_MEMORY_LIMIT", "MILLRACE_BATCH_PAYLOADS"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q does not name %s", err, text)
			}
		}
		if err := process(need).Admit(false, c.host, c.device); err != nil {
			t.Errorf("%+v: the error requests %d bytes, but Admit returns %v with that limit", c, need, err)
		}
		if process(need-8*mib).Admit(false, c.host, c.device) == nil {
			t.Errorf("%+v: the error requests %d bytes, but 8 MiB less are sufficient", c, need)
		}
	}
	p := process(1 << 30)
	p.goMemLimit = 10 * mib
	if err := p.Admit(false, 0, 0); err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT is 10 MiB") {
		t.Errorf("with GOMEMLIMIT=10MiB: %v, want an error that names it", err)
	}
}

func TestStatesCountAgainstTheLimit(t *testing.T) {
	p := NewProcess(4<<30, false)
	if err := p.Admit(false, 256*mib, 0); err != nil {
		t.Fatal(err)
	}
	before := p.Payloads
	if err := p.AdmitStates(512 * mib); err != nil || p.States != 512*mib || p.Payloads != before-256*mib {
		t.Errorf("%d MiB for states and %d of %d for payloads, %v", p.States/mib, p.Payloads, before, err)
	}
	if err := p.AdmitStates(4 << 30); err == nil || p.Payloads != 0 {
		t.Errorf("states as large as the limit: %d bytes for payloads, %v", p.Payloads, err)
	}
	gpu := NewProcess(4<<30, false)
	if err := gpu.Admit(true, 64*mib, 1<<30); err != nil {
		t.Fatal(err)
	}
	heap, payloads := gpu.GoRuntime, gpu.Payloads
	if err := gpu.AdmitPinnedStates(100 * mib); err != nil || gpu.GoRuntime != heap-100*mib || gpu.Payloads != payloads-50*mib || gpu.Pinned != 164*mib {
		t.Errorf("with 100 MiB pinned for states, Go has %d of %d MiB, payloads %d of %d, and %d are pinned, %v", gpu.GoRuntime/mib, heap/mib, gpu.Payloads/mib,
			payloads/mib, gpu.Pinned/mib, err)
	}
	if err := gpu.AdmitPinnedStates(4 << 30); err == nil || !strings.Contains(err.Error(), "4096 MiB for states") {
		t.Errorf("pinned states as large as the limit: %v", err)
	}
	if unknown := (&Process{}); unknown.AdmitStates(0) != nil || unknown.States != unlimitedStates {
		t.Errorf("without a limit, states have %d bytes", unknown.States)
	}
}
