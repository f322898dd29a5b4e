package host_test

import (
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
)

// benchDevice opens a device with a kernel named func, which does nothing.
func benchDevice(b *testing.B) (*host.Device, device.Stream) {
	b.Helper()
	nothing := kernelFunc(func([]byte, []uint32, []byte, device.Parallel) error { return nil })
	d, err := host.Open(host.Options{Cores: 1, Kernels: []device.HostKernel{nothing}})
	must(b, err)
	b.Cleanup(func() { _ = d.Close() }) // returns an error for objects that the benchmark left open
	s, err := d.NewStream("s")
	must(b, err)
	return d, s
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBatch measures the device's overhead for a small batch in place: scratch, launch, notification and free.
func BenchmarkBatch(b *testing.B) {
	d, s := benchDevice(b)
	k, err := d.Kernel("func", nil)
	must(b, err)
	p, err := d.NewPool(device.PoolOptions{Limit: 64 << 20, ReleaseThreshold: 64 << 20})
	must(b, err)
	const rows, bytes = 16, 1 << 10
	in, err := d.AllocHost(bytes + 4*(rows+1))
	must(b, err)
	out, err := d.AllocHost(64 * rows)
	must(b, err)
	region, err := d.Map(in)
	must(b, err)
	result, err := d.Map(out)
	must(b, err)
	args := device.LaunchArgs{
		Shape: device.Shape{Rows: rows, Bytes: bytes, Longest: bytes}, Rows: region.Slice(0, bytes),
		Offsets: region.Slice(bytes, 4*(rows+1)), Result: result,
	}
	for b.Loop() {
		scratch, err := p.Alloc(s, 4096)
		must(b, err)
		args.Scratch = scratch
		must(b, s.Launch(k, args))
		must(b, p.Free(s, scratch))
		must(b, s.Notify(1))
		_, err = d.WaitCompletion(b.Context())
		must(b, err)
	}
}

// BenchmarkPool measures an allocation and its free while 64 other blocks are allocated.
func BenchmarkPool(b *testing.B) {
	d, s := benchDevice(b)
	p, err := d.NewPool(device.PoolOptions{Limit: 64 << 20, ReleaseThreshold: 64 << 20})
	must(b, err)
	for i := range 128 {
		m, err := p.Alloc(s, 1<<10+i)
		must(b, err)
		if i%2 == 1 {
			must(b, p.Free(s, m))
		}
	}
	for b.Loop() {
		m, err := p.Alloc(s, 3<<10)
		must(b, err)
		must(b, p.Free(s, m))
	}
}
