package bench

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/operator"
)

// openPersistent opens a sender that runs crc32c through a persistent kernel on d. bytes is the maximum payload size.
func openPersistent(t *testing.T, d device.Device, bytes int) *persistentSender {
	t.Helper()
	s := &persistentSender{dev: d, ops: []operator.Operator{crc32c(t)}, bytes: bytes}
	t.Cleanup(func() {
		if err := s.close(); err != nil && !errors.Is(err, device.ErrLost) {
			t.Errorf("closing the sender: %v", err)
		}
	})
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	return s
}

func crc32c(t *testing.T) operator.Operator {
	t.Helper()
	op, err := operator.Parse("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// wantRecord sends a payload and compares its record with the reference.
func wantRecord(t *testing.T, s *persistentSender, payload []byte) {
	t.Helper()
	got, err := s.send(t.Context(), payload, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := crc32c(t).AppendReference(nil, payload); !slices.Equal(got, want) {
		t.Fatalf("the record of %d bytes is %x, want %x", len(payload), got, want)
	}
}

// TestPersistentKernelTakesPayloadsOfEverySize sends fresh data through one launch, one payload after another.
func TestPersistentKernelTakesPayloadsOfEverySize(t *testing.T) {
	s := openPersistent(t, openHost(t), 5000)
	for i, bytes := range []int{0, 1, 15, 16, 17, 5000, 0, 63, 64, 65, 4999, 1024, 1} {
		wantRecord(t, s, corpus.Text(uint64(i), bytes))
	}
}

// TestPersistentKernelIsLaunchedAgain uses a kernel that ends before each payload.
func TestPersistentKernelIsLaunchedAgain(t *testing.T) {
	k := kernelNamed(t, "crc32c:persistent").(persistentHost)
	k.idle = time.Nanosecond
	s := openPersistent(t, openHost(t, k), 1024)
	for i := range 20 {
		m := s.boxes[0]
		if err := m.ended.Synchronize(); err != nil {
			t.Fatal(err)
		}
		wantRecord(t, s, corpus.Text(uint64(i), 1000+i))
	}
}

// TestPersistentKernelEndsWhenIdle checks that an idle kernel ends without a request.
func TestPersistentKernelEndsWhenIdle(t *testing.T) {
	k := kernelNamed(t, "crc32c:persistent").(persistentHost)
	bound, err := persistentHost{k.HostKernel, time.Millisecond}.Bind(nil)
	if err != nil {
		t.Fatal(err)
	}
	memory := make([]mailboxWords, 2)
	mailbox := unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), len(memory)*mailboxHead)
	if err := bound.Run(mailbox, nil, nil, make([]byte, 4), nil); err != nil {
		t.Error(err)
	}
	if err := bound.Run(mailbox[:mailboxHead-1], nil, nil, nil, nil); err == nil {
		t.Error("a mailbox that is too short for its words is accepted")
	}
}

// failing is a kernel that fails on every batch.
type failing struct{ device.HostKernel }

func (f failing) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := f.HostKernel.Bind(params)
	return failingBound{bound}, err
}

type failingBound struct{ device.BoundHostKernel }

func (failingBound) Run([]byte, []uint32, []byte, []byte, device.Parallel) error {
	return errors.New("no more grain")
}

// TestPersistentKernelThatFailsLosesTheDevice checks that send returns an error although the payload never completes.
func TestPersistentKernelThatFailsLosesTheDevice(t *testing.T) {
	k := kernelNamed(t, "crc32c:persistent").(persistentHost)
	d, err := host.Open(host.Options{Cores: 2, Kernels: hostKernels(persistentHost{failing{k.HostKernel}, k.idle})})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }() // a lost device frees nothing
	s := openPersistent(t, d, 1024)
	if _, err := s.send(t.Context(), make([]byte, 100), nil); !errors.Is(err, device.ErrLost) {
		t.Errorf("the error is %v, want one that wraps %q", err, device.ErrLost)
	}
}

// never is an event that never completes.
type never struct{ device.Event }

func (never) Done() (bool, error) { return false, nil }

// TestMailboxAllocatesNothing checks that payloads cause no allocations. The row must measure the device, not the garbage collector.
func TestMailboxAllocatesNothing(t *testing.T) {
	memory := make([]mailboxWords, 2)
	shared := unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), len(memory)*mailboxHead)
	m := &mailbox{region: device.NewHostBuffer(shared, device.Pageable, nil), words: &memory[0], ended: never{}}
	var ended sync.WaitGroup
	ended.Go(func() { // acts as the kernel
		for number := m.words.next(time.Minute); number != mailboxStop; number = m.words.next(time.Minute) {
			m.words.finished.Store(number)
		}
	})
	payload, ctx := make([]byte, mailboxHead), t.Context()
	allocations := testing.AllocsPerRun(100, func() {
		m.post(payload)
		if err := m.await(ctx); err != nil {
			t.Error(err)
		}
	})
	m.stop()
	ended.Wait()
	if allocations != 0 {
		t.Errorf("%v allocations per payload, want none", allocations)
	}
}

// TestMailboxLayout checks the offsets that kernels/persistent.cuh asserts.
func TestMailboxLayout(t *testing.T) {
	var w mailboxWords
	got := []uintptr{unsafe.Offsetof(w.posted), unsafe.Offsetof(w.bytes), unsafe.Offsetof(w.finished), unsafe.Sizeof(w)}
	if want := []uintptr{0, 8, 64, 128}; !slices.Equal(got, want) {
		t.Errorf("offsets and size are %v, want %v", got, want)
	}
}
