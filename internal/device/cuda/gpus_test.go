package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
)

// gpus returns the GPUs to test on. Without a GPU, it skips the test with a message in capitals, or fails it if
// MILLRACE_REQUIRE_GPU=1.
func gpus(t testing.TB) (library string, all []device.Info) {
	t.Helper()
	library = builtLibrary()
	all, err := cuda.List(library)
	if err == nil && len(all) > 0 {
		return library, all
	}
	message := fmt.Sprintf("THE CUDA DEVICE IS NOT TESTED: NO GPU OR NO LIBMILLRACE.SO HERE: %v", err)
	if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" {
		t.Fatalf("%s (MILLRACE_REQUIRE_GPU=1 MAKES THIS A FAILURE)", message)
	}
	t.Skipf("%s (SET MILLRACE_REQUIRE_GPU=1 TO FAIL INSTEAD)", message)
	return "", nil
}

func open(t testing.TB, library string, info device.Info) device.Device {
	t.Helper()
	d, err := cuda.Open(cuda.Options{Library: library, Ordinal: info.Ordinal})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// batch is the work that TestSteadyStateAllocates repeats.
type batch struct {
	dev    device.Device
	stream device.Stream
	event  device.Event
	pool   device.Pool
	kernel device.Kernel
	in     device.HostBuffer
	out    device.HostBuffer
	args   device.LaunchArgs
	list   []device.Command
}

func (b *batch) run() error {
	scratch, err := b.pool.Alloc(b.stream, max(b.kernel.Needs(b.args.Shape).Scratch, 1))
	if err != nil {
		return err
	}
	b.args.Scratch = scratch
	b.list = append(b.list[:0],
		device.Command{Kind: device.DoCopyIn, Stream: b.stream, Memory: b.args.Offsets, Host: b.in},
		device.Command{Kind: device.DoLaunch, Stream: b.stream, Kernel: b.kernel, Args: &b.args},
		device.Command{Kind: device.DoCopyOut, Stream: b.stream, Host: b.out, Memory: b.args.Result},
		device.Command{Kind: device.DoRecord, Stream: b.stream, Event: b.event},
		device.Command{Kind: device.DoWait, Stream: b.stream, Event: b.event},
		device.Command{Kind: device.DoNotify, Stream: b.stream, Value: 1})
	return errors.Join(b.dev.Enqueue(b.list), b.pool.Free(b.stream, scratch))
}

// newBatch creates a batch of one row on a GPU. The batch is closed when the test ends.
func newBatch(t *testing.T, dev device.Device) *batch {
	t.Helper()
	b := &batch{dev: dev}
	var err error
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.stream, err = dev.NewStream("steady")
	check(err)
	b.event, err = dev.NewEvent(device.Timed)
	check(err)
	b.pool, err = dev.NewPool(device.PoolOptions{Limit: 64 << 20, ReleaseThreshold: 64 << 20})
	check(err)
	b.kernel, err = dev.Kernel("crc32c", nil)
	check(err)
	b.in, err = dev.AllocHost(8)
	check(err)
	b.out, err = dev.AllocHost(4)
	check(err)
	memory, err := dev.Alloc(1024)
	check(err)
	copy(b.in.Bytes(), []byte{0, 0, 0, 0, 9, 0, 0, 0})
	b.args = device.LaunchArgs{
		Shape: device.Shape{Rows: 1, Bytes: 9, Longest: 9},
		Rows:  memory.Slice(512, 9), Offsets: memory.Slice(0, 8), Result: memory.Slice(256, 4),
	}
	check(b.stream.Fill(memory, 0)) // the row consists of nine zero bytes
	t.Cleanup(func() {
		check(b.stream.Close())
		check(b.event.Close())
		check(b.pool.Close())
		check(b.kernel.Close())
		check(dev.FreeHost(b.in))
		check(dev.FreeHost(b.out))
		check(dev.Free(memory))
		check(dev.Close())
	})
	return b
}

// After a warm-up, a batch's path through the device allocates no Go memory.
func TestSteadyStateAllocates(t *testing.T) {
	library, all := gpus(t)
	for _, info := range all {
		t.Run(info.ID, func(t *testing.T) {
			b := newBatch(t, open(t, library, info))
			ctx := t.Context()
			once := func() {
				if err := b.run(); err != nil {
					t.Fatal(err)
				}
				if token, err := b.dev.WaitCompletion(ctx); err != nil || token != 1 {
					t.Fatalf("wait completion: token %d, %v", token, err)
				}
				if _, err := b.event.Time(); err != nil {
					t.Fatal(err)
				}
			}
			once()
			if n := testing.AllocsPerRun(200, once); n != 0 {
				t.Errorf("a batch allocates %v times, want never", n)
			}
		})
	}
}
