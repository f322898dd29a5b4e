package sim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// ms is the time unit of the tests in this package.
const ms = time.Millisecond

// crcKernel computes CRC-32C of each row, little-endian. It takes no parameters.
type crcKernel struct{}

func (crcKernel) Name() string { return "crc" }

func (crcKernel) Bind(params []byte) (device.BoundHostKernel, error) {
	if len(params) > 0 {
		return nil, fmt.Errorf("crc takes no parameters: %w", device.ErrInvalid)
	}
	return crcKernel{}, nil
}

func (crcKernel) Needs(s device.Shape) device.Needs { return device.Needs{Result: 4 * s.Rows} }

func (crcKernel) Run(rows []byte, offsets []uint32, _, result []byte, parallel device.Parallel) error {
	parallel(len(offsets)-1, func(i int) {
		binary.LittleEndian.PutUint32(result[4*i:], crcOf(rows[offsets[i]:offsets[i+1]]))
	})
	return nil
}

func crcOf(row []byte) uint32 { return crc32.Checksum(row, crc32.MakeTable(crc32.Castagnoli)) }

// sameKernel is crcKernel with a name that no model lists.
type sameKernel struct{ crcKernel }

func (sameKernel) Name() string { return "same" }

type brokenKernel struct{ crcKernel }

func (brokenKernel) Name() string                                       { return "broken" }
func (brokenKernel) Bind(params []byte) (device.BoundHostKernel, error) { return brokenKernel{}, nil }
func (brokenKernel) Run(_ []byte, _ []uint32, _, _ []byte, _ device.Parallel) error {
	return errors.New("divided by zero")
}

// rig is a device and a test that fails at the first unexpected error.
type rig struct {
	*testing.T
	dev       *sim.Device
	abandoned bool // don't close anything at the end of the test
}

// open creates a device. The test fails if the device leaks.
func open(t *testing.T, o sim.Options) *rig {
	t.Helper()
	o.Kernels = append(o.Kernels, crcKernel{}, sameKernel{}, brokenKernel{})
	dev, err := sim.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, dev: dev}
	r.closeLater("device", dev.Close)
	return r
}

// closeLater calls release at the end of the test. On a lost device, release may fail with the loss.
func (r *rig) closeLater(what string, release func() error) {
	r.Cleanup(func() {
		if r.abandoned {
			return
		}
		err := release()
		if r.dev.Err() != nil && errors.Is(err, device.ErrLost) {
			return
		}
		if err != nil {
			r.Errorf("closing %s: %v", what, err)
		}
	})
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) is(err, kind error) {
	r.Helper()
	if !errors.Is(err, kind) {
		r.Fatalf("error %v, want %v", err, kind)
	}
}

func (r *rig) stream(name string) device.Stream {
	r.Helper()
	s, err := r.dev.NewStream(name)
	r.ok(err)
	r.closeLater("stream "+name, s.Close)
	return s
}

func (r *rig) event() device.Event {
	r.Helper()
	e, err := r.dev.NewEvent(device.Timed)
	r.ok(err)
	r.closeLater("event", e.Close)
	return e
}

func (r *rig) host(bytes int) device.HostBuffer {
	r.Helper()
	b, err := r.dev.AllocHost(bytes)
	r.ok(err)
	r.closeLater("host buffer", func() error { return r.dev.FreeHost(b) })
	return b
}

func (r *rig) memory(bytes int) device.Memory {
	r.Helper()
	m, err := r.dev.Alloc(bytes)
	r.ok(err)
	r.closeLater("memory", func() error { return r.dev.Free(m) })
	return m
}

func (r *rig) kernel(name string) device.Kernel {
	r.Helper()
	k, err := r.dev.Kernel(name, nil)
	r.ok(err)
	r.closeLater("kernel", k.Close)
	return k
}

func (r *rig) pool(c device.PoolOptions) device.Pool {
	r.Helper()
	p, err := r.dev.NewPool(c)
	r.ok(err)
	r.closeLater("pool", p.Close)
	return p
}

// gate stalls s until the returned function is called.
func (r *rig) gate(s device.Stream) (open func()) {
	r.Helper()
	open, err := r.dev.Gate(s)
	r.ok(err)
	return open
}

func (r *rig) now(want time.Duration) {
	r.Helper()
	if got := r.dev.Now(); got != want {
		r.Fatalf("the clock reads %v, want %v", got, want)
	}
}

// completes checks that the next completions have these tokens, in this order.
func (r *rig) completes(tokens ...uint64) {
	r.Helper()
	for _, want := range tokens {
		got, err := r.dev.WaitCompletion(r.Context())
		r.ok(err)
		if got != want {
			r.Fatalf("got completion %d, want %d", got, want)
		}
	}
}

// batch is a ragged batch with its memory: the offsets table first, then the rows.
type batch struct {
	*rig
	rows    []string
	shape   device.Shape
	in, out device.HostBuffer
	dev     device.Memory
	result  device.Memory
}

func (r *rig) batch(rows ...string) *batch {
	r.Helper()
	b := &batch{rig: r, rows: rows, shape: device.Shape{Rows: len(rows)}}
	for _, row := range rows {
		b.shape.Bytes += len(row)
		b.shape.Longest = max(b.shape.Longest, len(row))
	}
	table := 4 * (len(rows) + 1)
	b.in, b.out = r.host(table+b.shape.Bytes), r.host(4*len(rows))
	b.dev, b.result = r.memory(table+b.shape.Bytes), r.memory(4*len(rows))
	region, at := b.in.Bytes(), 0
	for i, row := range rows {
		binary.LittleEndian.PutUint32(region[4*i:], uint32(at))
		at += copy(region[table+at:], row)
	}
	binary.LittleEndian.PutUint32(region[4*len(rows):], uint32(at))
	return b
}

func (b *batch) args() device.LaunchArgs {
	table := 4 * (b.shape.Rows + 1)
	return device.LaunchArgs{
		Shape:   b.shape,
		Offsets: b.dev.Slice(0, table),
		Rows:    b.dev.Slice(table, b.shape.Bytes),
		Result:  b.result,
	}
}

// submit enqueues the batch's three stages and a notification on s.
func (b *batch) submit(s device.Stream, k device.Kernel, token uint64) {
	b.Helper()
	b.ok(s.CopyIn(b.dev, b.in))
	b.ok(s.Launch(k, b.args()))
	b.ok(s.CopyOut(b.out, b.result))
	b.ok(s.Notify(token))
}

func (b *batch) verify() {
	b.Helper()
	out := b.out.Bytes()
	for i, row := range b.rows {
		if got, want := binary.LittleEndian.Uint32(out[4*i:]), crcOf([]byte(row)); got != want {
			b.Errorf("row %d: crc %08x, want %08x", i, got, want)
		}
	}
}
