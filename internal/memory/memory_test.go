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
	fails := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	half := Limit{Bytes: machine / 2, Source: "half of the machine's memory"}
	for name, c := range map[string]struct {
		cgroup, machine memlimit.Provider
		want            Limit
	}{
		"a limit":                     {memlimit.Limit(4 << 30), memlimit.Limit(machine), Limit{Bytes: 4 << 30, Source: "cgroup"}},
		"a limit above the machine's": {memlimit.Limit(64 << 30), memlimit.Limit(machine), half},
		"no limit":                    {fails(memlimit.ErrNoLimit), memlimit.Limit(machine), half},
		"no cgroup":                   {fails(memlimit.ErrNoCgroup), memlimit.Limit(machine), half},
		"no Linux":                    {fails(memlimit.ErrCgroupsNotSupported), memlimit.Limit(machine), half},
		"an unreadable limit":         {fails(errors.New("broken")), memlimit.Limit(machine), Limit{Bytes: half.Bytes, Source: half.Source + "; the cgroup's limit is unknown: broken"}},
		"an unknown system":           {fails(memlimit.ErrCgroupsNotSupported), fails(memlimit.ErrNoLimit), Limit{Source: "unknown on this system"}},
	} {
		if got := find(c.cgroup, c.machine); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	// A test in internal/faults runs the worker under a real limit.
	if got := Find(); got.Bytes < 1<<20 {
		t.Errorf("on this machine: %+v, less than this test needs", got)
	}
}

func TestDivideSubtractsFixedMemory(t *testing.T) {
	l := Limit{Bytes: 512 * mib, Source: "cgroup"}
	f := Fixed{Heap: 100 * mib, OffHeap: 68 * mib}
	p, err := l.Divide(f, Unset)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64((512 - 32 - 68) * mib); p.Heap != want {
		t.Errorf("the limit of the runtime is %d MiB, want %d", p.Heap/mib, want/mib)
	}
	if want := int64((412 - 100 - 48) / 2 * mib); p.Payloads != want {
		t.Errorf("%d MiB for payloads, want %d", p.Payloads/mib, want/mib)
	}
	lower, err := l.Divide(f, 300*mib)
	if err != nil || lower.Heap != 300*mib || lower.Payloads != (300-100-48)/2*mib {
		t.Errorf("with GOMEMLIMIT=300MiB: %+v, %v", lower, err)
	}
	if p, err := (Limit{}).Divide(f, Unset); err != nil || p != (Plan{}) {
		t.Errorf("without a limit: %+v, %v; want the zero Plan", p, err)
	}
}

// TestErrorOfDivideNamesASufficientLimit checks that the limit in the error is sufficient, and that 8 MiB less is not.
func TestErrorOfDivideNamesASufficientLimit(t *testing.T) {
	for _, f := range []Fixed{{}, {OffHeap: 68 * mib}, {Heap: 537 * mib}, {Heap: 900 * mib, OffHeap: 4096 * mib}} {
		l := Limit{Bytes: 64 * mib, Source: "cgroup /x"}
		_, err := l.Divide(f, Unset)
		if err == nil {
			t.Fatalf("%+v: no error", f)
		}
		need := l.need(f)
		for _, text := range []string{"64 MiB", "cgroup /x", fmt.Sprintf("need %d MiB", ceil(need)), "MILLRACE_MEMORY_LIMIT", "MILLRACE_BATCH_PAYLOADS"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q does not name %s", err, text)
			}
		}
		if _, err := (Limit{Bytes: need}).Divide(f, Unset); err != nil {
			t.Errorf("%+v: the error asks for %d bytes, but with them Divide returns %v", f, need, err)
		}
		if p, err := (Limit{Bytes: need - 8*mib}).Divide(f, Unset); err == nil {
			t.Errorf("%+v: the error asks for %d bytes, but 8 MiB less suffice: %+v", f, need, p)
		}
	}
	if _, err := (Limit{Bytes: 1 << 30}).Divide(Fixed{}, 10*mib); err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT is 10 MiB") {
		t.Errorf("with GOMEMLIMIT=10MiB: %v, want an error that names it", err)
	}
}
