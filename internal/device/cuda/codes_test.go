//go:build cgo

package cuda_test

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
)

// code is a line of testdata/codes.txt.
type code struct {
	number  int
	kind    string
	runtime string
	driver  string
}

// kinds maps the names in codes.txt to kinds of failure.
var kinds = map[string]error{
	"kernel": device.ErrKernelFault, "lost": device.ErrLost, "invalid": device.ErrInvalid, "launch": device.ErrLaunch,
	"out_of_memory": device.ErrOutOfMemory, "unavailable": device.ErrUnavailable, "not_found": device.ErrNotFound,
	"not_ready": device.ErrNotReady,
}

// codes returns all codes of CUDA and some codes that don't exist, because a later version may add any code.
func codes(t testing.TB) []code {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "codes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // the file was only read
	all := []code{{number: 11, kind: "lost"}, {number: 227, kind: "lost"}, {number: 813, kind: "lost"}, {number: 998, kind: "lost"}, {number: 12345, kind: "lost"}}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var c code
		var since string
		if _, err := fmt.Sscan(lines.Text(), &c.number, &c.kind, &since, &c.runtime, &c.driver); err != nil {
			t.Fatalf("codes.txt: %q: %v", lines.Text(), err)
		}
		if kinds[c.kind] == nil {
			t.Fatalf("codes.txt: %q: there is no kind %s", lines.Text(), c.kind)
		}
		all = append(all, c)
	}
	if len(all) < 130 {
		t.Fatalf("codes.txt has %d codes, fewer than any CUDA", len(all))
	}
	return all
}

// codes.txt has every code of the installed toolkit's headers, with the same name.
func TestEveryCodeOfTheHeaders(t *testing.T) {
	known := map[int]code{}
	for _, c := range codes(t) {
		known[c.number] = c
	}
	found := 0
	for _, home := range []string{os.Getenv("CUDA_HOME"), "/usr/local/cuda", "/opt/cuda"} {
		if home == "" {
			continue
		}
		for header, name := range map[string]string{"driver_types.h": `cudaError\w+`, "cuda.h": `CUDA_ERROR_\w+`} {
			text, err := os.ReadFile(filepath.Join(home, "include", header))
			if err != nil {
				continue
			}
			for _, m := range regexp.MustCompile(`(?m)^\s+(`+name+`)\s*=\s*(\d+)`).FindAllStringSubmatch(string(text), -1) {
				found++
				number, _ := strconv.Atoi(m[2])
				if c, ok := known[number]; !ok {
					t.Errorf("%s/include/%s: codes.txt lacks %d %s: add it with its kind", home, header, number, m[1])
				} else if c.runtime != m[1] && c.driver != m[1] {
					t.Errorf("%s/include/%s: %d is %s, which codes.txt calls %s and %s", home, header, number, m[1], c.runtime, c.driver)
				}
			}
		}
	}
	if found == 0 {
		if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" {
			t.Fatal("NO CUDA HEADERS HERE: SET CUDA_HOME (MILLRACE_REQUIRE_GPU=1 MAKES THIS A FAILURE)")
		}
		t.Skip("NOT TESTED: THERE ARE NO CUDA HEADERS HERE TO COMPARE CODES WITH (CUDA_HOME)")
	}
}

// gear has one object of each kind on a device of the fake library.
type gear struct {
	dev    device.Device
	stream device.Stream
	event  device.Event
	timed  device.Event
	pool   device.Pool
	kernel device.Kernel
	host   device.HostBuffer
	memory device.Memory
	pooled device.Memory
	args   device.LaunchArgs

	// After loadOperators:
	image   []byte        // an operator that is not loaded
	file    string        // a library that is not loaded
	module  device.Module // loaded, and not in use
	own     device.Kernel // kernel of another loaded operator
	ownArgs device.LaunchArgs
}

// loadOperators sets the fields that the calls for loaded operators use.
func (g *gear) loadOperators(t testing.TB) {
	t.Helper()
	entropy := entropyImage(t)
	g.image = patched(t, entropy, 120, []byte("another\x00")...)
	g.file = halvesLibrary(t)
	var unused, other, kernel error
	g.module, unused = load(g.dev, patched(t, entropy, 120, []byte("unused\x00\x00")...))
	_, other = load(g.dev, entropy)
	g.own, kernel = g.dev.Kernel("entropy", []byte{4, 0, 0, 0})
	if err := errors.Join(unused, other, kernel); err != nil {
		t.Fatal(err)
	}
	g.ownArgs = g.args
	g.ownArgs.Result = g.memory.Slice(2048, 512)
}

func newGear(t testing.TB, library string) *gear {
	t.Helper()
	return newGearWith(t, cuda.Options{Library: library})
}

func newGearWith(t testing.TB, o cuda.Options) *gear {
	t.Helper()
	fakecuda.Set(t, "")
	d, err := cuda.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	g := &gear{dev: d}
	t.Cleanup(func() { fakecuda.Set(t, ""); _ = d.Close() }) // other tests check leaks and losses
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	g.stream, err = d.NewStream("s")
	check(err)
	g.event, err = d.NewEvent(0)
	check(err)
	g.timed, err = d.NewEvent(device.Timed)
	check(err)
	g.pool, err = d.NewPool(device.PoolOptions{Limit: 64 << 20})
	check(err)
	g.kernel, err = d.Kernel("crc32c", nil)
	check(err)
	g.host, err = d.AllocHost(4096)
	check(err)
	clear(g.host.Bytes())
	g.memory, err = d.Alloc(4096)
	check(err)
	g.pooled, err = g.pool.Alloc(g.stream, 64)
	check(err)
	g.args = device.LaunchArgs{
		Shape: device.Shape{Rows: 1, Bytes: 9, Longest: 9}, Rows: g.memory.Slice(512, 9), Offsets: g.memory.Slice(0, 8),
		Result: g.memory.Slice(256, 4), Scratch: g.memory.Slice(1024, 256),
	}
	check(g.stream.CopyIn(g.memory, g.host))
	check(g.stream.Record(g.timed))
	return g
}

// call is an operation of a device and the CUDA functions that it calls.
type call struct {
	name      string
	do        func(g *gear) error
	functions []string
}

func errOf[T any](_ T, err error) error { return err }

// calls lists all calls of the ABI that can fail. It omits the calls of gates, which no worker makes.
var calls = []call{
	{"new stream", func(g *gear) error { return errOf(g.dev.NewStream("more")) }, []string{"cudaSetDevice", "cudaStreamCreateWithFlags"}},
	{"new event", func(g *gear) error { return errOf(g.dev.NewEvent(0)) }, []string{"cudaSetDevice", "cudaEventCreateWithFlags"}},
	{"alloc host", func(g *gear) error { return errOf(g.dev.AllocHost(64)) }, []string{"cudaSetDevice", "cudaHostAlloc"}},
	{"free host", func(g *gear) error { return g.dev.FreeHost(g.host) }, []string{"cudaSetDevice", "cudaFreeHost"}},
	{"alloc", func(g *gear) error { return errOf(g.dev.Alloc(64)) }, []string{"cudaSetDevice", "cudaMalloc"}},
	{"free", func(g *gear) error { return g.dev.Free(g.memory) }, []string{"cudaSetDevice", "cudaFree"}},
	{"new pool", func(g *gear) error { return errOf(g.dev.NewPool(device.PoolOptions{Limit: 64 << 20})) },
		[]string{"cudaSetDevice", "cudaDeviceGetAttribute", "cudaMemPoolCreate", "cudaMemPoolSetAttribute", "cudaMallocFromPoolAsync", "cudaFreeAsync"}},
	{"pool alloc", func(g *gear) error { return errOf(g.pool.Alloc(g.stream, 64)) }, []string{"cudaSetDevice", "cudaMallocFromPoolAsync"}},
	{"pool free", func(g *gear) error { return g.pool.Free(g.stream, g.pooled) }, []string{"cudaSetDevice", "cudaFreeAsync"}},
	{"pool trim", func(g *gear) error { return g.pool.Trim(0) }, []string{"cudaSetDevice", "cudaMemPoolTrimTo"}},
	{"pool stats", func(g *gear) error { return errOf(g.pool.Stats()) }, []string{"cudaSetDevice", "cudaMemPoolGetAttribute"}},
	{"kernel", func(g *gear) error { return errOf(g.dev.Kernel("crc32c", nil)) },
		[]string{"cudaSetDevice", "cudaFuncGetAttributes", "cudaDeviceGetAttribute", "cudaMalloc", "cudaMemcpyAsync", "cudaStreamSynchronize"}},
	{"copy in", func(g *gear) error { return g.stream.CopyIn(g.memory, g.host) }, []string{"cudaSetDevice", "cudaMemcpyAsync"}},
	{"copy out", func(g *gear) error { return g.stream.CopyOut(g.host, g.memory) }, []string{"cudaSetDevice", "cudaMemcpyAsync"}},
	{"fill", func(g *gear) error { return g.stream.Fill(g.memory, 0) }, []string{"cudaSetDevice", "cudaMemsetAsync"}},
	{"launch", func(g *gear) error { return g.stream.Launch(g.kernel, g.args) }, []string{"cudaSetDevice", "cudaLaunchKernel"}},
	{"record", func(g *gear) error { return g.stream.Record(g.event) }, []string{"cudaSetDevice", "cudaEventRecord"}},
	{"wait", func(g *gear) error { return g.stream.Wait(g.timed) }, []string{"cudaSetDevice", "cudaStreamWaitEvent"}},
	{"notify", func(g *gear) error { return g.stream.Notify(1) }, []string{"cudaSetDevice", "cudaLaunchHostFunc"}},
	{"synchronize", func(g *gear) error { return g.stream.Synchronize() }, []string{"cudaSetDevice", "cudaStreamSynchronize"}},
	{"event done", func(g *gear) error { return errOf(g.timed.Done()) }, []string{"cudaSetDevice", "cudaEventQuery"}},
	{"await event", func(g *gear) error { return g.timed.Synchronize() }, []string{"cudaSetDevice", "cudaEventSynchronize"}},
	{"event time", func(g *gear) error { return errOf(g.timed.Time()) }, []string{"cudaSetDevice", "cudaEventElapsedTime"}},
	{"close stream", func(g *gear) error { return g.stream.Close() }, []string{"cudaSetDevice", "cudaStreamSynchronize", "cudaStreamDestroy"}},
	{"close event", func(g *gear) error { return g.event.Close() }, []string{"cudaSetDevice", "cudaEventDestroy"}},
	{"close pool", func(g *gear) error { return errors.Join(g.pool.Free(g.stream, g.pooled), g.pool.Close()) }, []string{"cudaMemPoolDestroy"}},
	{"close kernel", func(g *gear) error { return g.kernel.Close() }, []string{"cudaSetDevice", "cudaFree"}},
	{"load operator", func(g *gear) error { return errOf(load(g.dev, g.image)) },
		[]string{"cudaSetDevice", "cudaGetDriverEntryPoint", "cuModuleLoadDataEx", "cuModuleGetGlobal", "cudaStreamCreateWithFlags", "cudaMemcpyAsync",
			"cudaStreamSynchronize", "cuModuleGetFunction", "cuFuncGetAttribute"}},
	{"load library", func(g *gear) error { return errOf(g.dev.(device.Loader).LoadLibrary(g.file)) }, []string{"cudaSetDevice"}},
	{"unload operator", func(g *gear) error { return g.module.Close() }, []string{"cudaSetDevice", "cuModuleUnload"}},
	{"launch operator", func(g *gear) error { return g.stream.Launch(g.own, g.ownArgs) }, []string{"cudaSetDevice", "cuLaunchKernel"}},
	{"check", func(g *gear) error { return g.dev.Check(shortly()) },
		[]string{"cudaSetDevice", "cudaMemcpyAsync", "cudaLaunchKernel", "cudaStreamQuery"}},
}

// handles lists the calls whose only arguments are handles.
var handles = map[string]bool{
	"record": true, "wait": true, "notify": true, "event done": true, "await event": true, "event time": true,
	"synchronize": true, "pool free": true, "unload operator": true,
}

// representative contains codes of every kind.
var representative = map[int]bool{1: true, 2: true, 100: true, 101: true, 209: true, 600: true, 700: true, 810: true, 999: true, 12345: true}

// refusedImage maps the codes with which the driver refuses an image to the kind of the error.
var refusedImage = map[int]error{
	1: device.ErrInvalid, 200: device.ErrInvalid, 218: device.ErrInvalid, 300: device.ErrInvalid, 302: device.ErrInvalid, 303: device.ErrInvalid,
	500: device.ErrInvalid, 209: device.ErrUnavailable, 221: device.ErrUnavailable, 222: device.ErrUnavailable, 223: device.ErrUnavailable,
}

// want returns the expected kind of error for a code at a call on an open device. It returns nil if no error is
// expected.
func want(c code, name, function string) error {
	switch kind := kinds[c.kind]; {
	case function == "cuModuleLoadDataEx" && refusedImage[c.number] != nil:
		return refusedImage[c.number]
	case (function == "cuModuleGetGlobal" || function == "cuModuleGetFunction") && c.number == 500:
		return device.ErrInvalid // the image has no such symbol
	case errors.Is(kind, device.ErrLost):
		return kind
	case name == "check" && function == "cudaSetDevice":
		return device.ErrLost
	case name == "check" && (c.kind == "out_of_memory" || c.kind == "not_ready"):
		return nil // a later call retries
	case name == "check":
		return device.ErrLost // the probe's arguments are valid
	case name == "event done" && c.kind == "not_ready":
		return nil // the code means that the event is pending
	case name == "event time" && c.kind == "not_ready":
		return device.ErrNotReady
	case function == "cudaHostAlloc" && c.kind == "invalid":
		return device.ErrOutOfMemory
	case function == "cudaFuncGetAttributes" && c.kind == "launch":
		return device.ErrUnavailable
	case (function == "cudaLaunchKernel" || function == "cuLaunchKernel") && c.kind == "invalid":
		return device.ErrLaunch
	case function == "cudaMemPoolCreate" && c.kind == "invalid", name == "new pool" && function == "cudaMemPoolSetAttribute" && c.kind == "invalid":
		return device.ErrUnavailable
	case name == "new pool" && function == "cudaMallocFromPoolAsync" && c.kind == "invalid":
		return device.ErrOutOfMemory
	case (handles[name] || name == "close stream" && function != "cudaStreamDestroy") && !errors.Is(kind, device.ErrOutOfMemory):
		return device.ErrLost // these calls have no argument that CUDA could refuse
	case errors.Is(kind, device.ErrUnavailable) || errors.Is(kind, device.ErrNotFound) || errors.Is(kind, device.ErrNotReady):
		return device.ErrLost // the device was available before
	default:
		return kind
	}
}

// everyCode makes TestEveryCodeAtEveryCall inject every code at every function of each call. By default, it does so
// only at the first call of a function. Later calls get only the codes in representative.
var everyCode = os.Getenv("MILLRACE_EVERY_CODE") != ""

// TestEveryCodeAtEveryCall injects every code at every function, and codes of every kind at every call. Every code that
// CUDA doesn't document as a refusal is a loss. The loss states whether a kernel may have caused it. The device records
// every loss and no other error.
func TestEveryCodeAtEveryCall(t *testing.T) {
	library, all := fakecuda.Library(t), codes(t)
	for _, c := range all {
		if !slices.ContainsFunc(all, func(other code) bool { return other.kind == c.kind && representative[other.number] }) {
			t.Errorf("no code of the kind %s is representative", c.kind)
		}
	}
	seen, injected := map[string]int{}, map[string]bool{}
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) {
			for _, function := range call.functions {
				for _, c := range all {
					if function == "cudaSetDevice" && call.name != "copy in" && !representative[c.number] {
						continue // every call begins with cudaSetDevice
					}
					if injected[function] && !representative[c.number] && !everyCode {
						continue // an earlier call has tested this code at this function
					}
					wanted := want(c, call.name, function)
					if call.name == "alloc host" && c.number == 304 && function == "cudaHostAlloc" {
						wanted = device.ErrOutOfMemory // the system refused
					}
					seen[judge(t, library, call, function, c, wanted)]++
				}
				injected[function] = injected[function] || function != "cudaSetDevice" || call.name == "copy in"
			}
		})
	}
	t.Logf("number of errors by kind: %v", maps.Collect(maps.All(seen)))
}

// judge injects one code and returns the kind of the error.
func judge(t *testing.T, library string, call call, function string, c code, wanted error) string {
	t.Helper()
	g := newGear(t, library)
	defer func() { fakecuda.Set(t, ""); _ = g.dev.Close() }() // other tests check leaks
	if strings.Contains(call.name, "operator") {
		g.loadOperators(t)
	}
	fakecuda.Set(t, fmt.Sprintf("call=%s code=%d", function, c.number))
	err := call.do(g)
	where := fmt.Sprintf("%s, %s fails with %d %s (%s)", call.name, function, c.number, c.runtime, c.kind)
	var e *device.Error
	switch {
	case wanted == nil && err != nil, wanted != nil && (!errors.As(err, &e) || e.Kind != wanted): //nolint:errorlint // compares the kind itself
		t.Errorf("%s: got %v, want %v", where, err, wanted)
		return "wrong"
	case errors.Is(err, device.ErrLost) != (g.dev.Err() != nil):
		t.Errorf("%s: got %v, but the device's error is %v", where, err, g.dev.Err())
		return "wrong"
	case errors.Is(err, device.ErrKernelFault) != errors.Is(wanted, device.ErrKernelFault):
		t.Errorf("%s: got %v, which must wrap ErrKernelFault only if a kernel may be the cause", where, err)
		return "wrong"
	}
	return device.Kind(err)
}
