//go:build cgo

package cuda_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
)

// This file tests the Go side of the device. The library under test, testdata/library.c, does its work immediately in
// host memory. The conformance suite tests the semantics of streams, events and pools on a GPU.

// simple opens the first of the library's two devices.
func simple(t *testing.T) device.Device {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "library.c"))
	if err != nil {
		t.Skipf("NOT TESTED: THE PACKAGE'S FOLDER IS NOT HERE: %v", err)
	}
	d, err := cuda.Open(cuda.Options{Library: buildLibrary(t, string(source), "-I"+headerFolder(t))})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// must returns a function that ends the test on an error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestInfo(t *testing.T) {
	d := simple(t)
	want := device.Info{
		Kind: "cuda", ID: "GPU-zero", Name: "no GPU", Memory: 1 << 20, Compute: "9.0", Driver: "13.0", Runtime: "12.4", Units: 132,
	}
	if got := d.Info(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A batch passes through the whole device and everything is freed. Otherwise the library would refuse to close.
func TestBatch(t *testing.T) {
	d := simple(t)
	s := must[device.Stream](t)(d.NewStream("lane-0"))
	k := must[device.Kernel](t)(d.Kernel("length", nil))
	p := must[device.Pool](t)(d.NewPool(device.PoolOptions{}))
	e := must[device.Event](t)(d.NewEvent(device.Timed))
	host := must[device.HostBuffer](t)(d.AllocHost(64))
	memory := must[device.Memory](t)(d.Alloc(1024))
	for i, offset := range []uint32{0, 3, 3, 10} {
		binary.LittleEndian.PutUint32(host.Bytes()[4*i:], offset)
	}
	base := int((256 - memory.Addr%256) % 256) // the library allocates its memory with malloc
	args := device.LaunchArgs{
		Shape: device.Shape{Rows: 3, Bytes: 10, Longest: 7}, Rows: memory.Slice(base+512, 10),
		Offsets: memory.Slice(base, 16), Result: memory.Slice(base+256, 12), Scratch: memory.Slice(base+512, 10),
	}
	if n := k.Needs(args.Shape); n != (device.Needs{Scratch: 10, Result: 12}) {
		t.Errorf("needs %+v", n)
	}
	pooled := must[device.Memory](t)(p.Alloc(s, 10))
	before := d.Now()
	for _, err := range []error{
		s.CopyIn(args.Offsets, host.Slice(0, 16)), s.Launch(k, args), s.CopyOut(host.Slice(16, 12), args.Result),
		p.Free(s, pooled), s.Record(e), s.Wait(e), s.Notify(7), s.Synchronize(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if token := must[uint64](t)(d.WaitCompletion(t.Context())); token != 7 {
		t.Errorf("token %d, want 7", token)
	}
	if at := must[time.Duration](t)(e.Time()); at < before-time.Millisecond || at > d.Now()+time.Millisecond {
		t.Errorf("the event was at %v, which is not between %v and now", at, before)
	}
	if got := host.Bytes()[16:28]; !slices.Equal(got, []byte{3, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0}) {
		t.Errorf("result %v", got)
	}
	for _, err := range []error{s.Close(), k.Close(), p.Close(), e.Close(), d.FreeHost(host), d.Free(memory), d.Close(), d.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

// Close names everything that was left open and frees all of it.
func TestLeaksAreNamedAndFreed(t *testing.T) {
	d := simple(t)
	s := must[device.Stream](t)(d.NewStream("lane-3"))
	must[device.Event](t)(d.NewEvent(0))
	must[device.Kernel](t)(d.Kernel("length", nil))
	p := must[device.Pool](t)(d.NewPool(device.PoolOptions{}))
	must[device.Memory](t)(p.Alloc(s, 100))
	must[device.HostBuffer](t)(d.AllocHost(200))
	must[device.Memory](t)(d.Alloc(300))
	var leak *device.LeakError
	err := d.Close()
	if !errors.As(err, &leak) || strings.Contains(err.Error(), "objects were not freed") {
		t.Fatalf("got %v, want a LeakError alone", err)
	}
	want := []string{"event", "host buffer 200 bytes", "kernel length", "memory 300 bytes", "pool 100 bytes used", "stream lane-3"}
	if !slices.Equal(leak.Open, want) {
		t.Errorf("open: %q, want %q", leak.Open, want)
	}
}

func TestKindsOfFailure(t *testing.T) {
	d := simple(t)
	_, tooMuch := d.Alloc(2 << 20)
	_, nosuch := d.Kernel("nosuch", nil)
	_, block := d.Kernel("length", []byte{1})
	for kind, err := range map[error]error{device.ErrOutOfMemory: tooMuch, device.ErrNotFound: nosuch, device.ErrInvalid: block} {
		var e *device.Error
		if !errors.Is(err, kind) || !errors.As(err, &e) || e.Device != "GPU-zero" {
			t.Errorf("got %v, want an error of device GPU-zero that wraps %q", err, kind)
		}
	}
	_, older := d.Kernel("quality", nil)
	for err, want := range map[error]string{older: "older than this program: build both from one commit", nosuch: "MILLRACE_OPERATOR_PATH"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message doesn't say %q: %v", want, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// If a fault prevents a token from arriving, the wait must report that the device is lost. All other calls must report
// the same.
func TestLossEndsWait(t *testing.T) {
	d := simple(t)
	s := must[device.Stream](t)(d.NewStream("s"))
	m := must[device.Memory](t)(d.Alloc(64))
	for _, err := range []error{s.Notify(1), s.Fill(m, 0xdd), s.Notify(2), d.Err()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if token := must[uint64](t)(d.WaitCompletion(t.Context())); token != 1 {
		t.Errorf("token %d, want 1", token)
	}
	_, wait := d.WaitCompletion(t.Context())
	_, again := d.WaitCompletion(t.Context())
	_, event := d.NewEvent(0)
	for what, err := range map[string]error{
		"wait": wait, "wait again": again, "event": event, "err": d.Err(), "fill": s.Fill(m, 1), "free": d.Free(m),
		"close stream": s.Close(), "close": d.Close(),
	} {
		if !errors.Is(err, device.ErrLost) {
			t.Errorf("%s on a lost device: got %v, want an error that wraps %q", what, err, device.ErrLost)
		}
	}
}

// A wait ends when its context ends or the device closes, whenever that happens.
func TestWaitEnds(t *testing.T) {
	d := simple(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	wait := func(ctx context.Context) {
		_, err := d.WaitCompletion(ctx)
		ended <- err
	}
	go wait(ctx)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	go wait(context.Background())
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, device.ErrClosed) {
		t.Errorf("got %v, want %v", err, device.ErrClosed)
	}
}

// A batch's path through the device allocates no memory.
func TestNoAllocations(t *testing.T) {
	d := simple(t)
	s := must[device.Stream](t)(d.NewStream("s"))
	k := must[device.Kernel](t)(d.Kernel("length", nil))
	p := must[device.Pool](t)(d.NewPool(device.PoolOptions{}))
	e := must[device.Event](t)(d.NewEvent(device.Timed))
	host := must[device.HostBuffer](t)(d.AllocHost(64))
	memory := must[device.Memory](t)(d.Alloc(64))
	list := []device.Command{
		{Kind: device.DoCopyIn, Stream: s, Memory: memory, Host: host},
		{Kind: device.DoCopyOut, Stream: s, Memory: memory, Host: host},
		{Kind: device.DoFill, Stream: s, Memory: memory, Value: 1},
		{Kind: device.DoLaunch, Stream: s, Kernel: k, Args: &device.LaunchArgs{Offsets: memory}},
		{Kind: device.DoRecord, Stream: s, Event: e},
		{Kind: device.DoWait, Stream: s, Event: e},
		{Kind: device.DoNotify, Stream: s, Value: 1},
	}
	n := testing.AllocsPerRun(100, func() {
		m, err := p.Alloc(s, 64)
		done, _ := e.Done()
		for _, err := range [...]error{err, d.Enqueue(list), p.Free(s, m), e.Synchronize(), s.Synchronize()} {
			if err != nil || !done {
				t.Fatal(done, err)
			}
		}
		_, wait := d.WaitCompletion(t.Context())
		_, at := e.Time()
		_, stats := p.Stats()
		if err := errors.Join(wait, at, stats); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per batch, want none", n)
	}
	for _, err := range []error{s.Close(), k.Close(), p.Close(), e.Close(), d.FreeHost(host), d.Free(memory), d.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}
