package streams_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func operators(t testing.TB, list string) []operator.Operator {
	t.Helper()
	ops, err := operator.ParseList(list)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// openHost opens a host device that must be closed without leaks.
func openHost(t testing.TB) device.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClean(t, d) })
	return d
}

// openCopyingHost opens a host device that must copy batches, like a GPU. Unlike sim, it runs streams on goroutines.
func openCopyingHost(t testing.TB) device.Device {
	t.Helper()
	d := openHost(t)
	return struct { // no device.Mapper
		device.Device
		device.Gater
	}{d, d.(device.Gater)}
}

// openSim opens a simulated device. The cleanup checks for leaks only if the device is not lost.
func openSim(t testing.TB, o sim.Options) *sim.Device {
	t.Helper()
	o.Kernels = operator.HostKernels()
	d, err := sim.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.Err() == nil {
			closeClean(t, d)
		}
	})
	return d
}

// openCUDA opens the first GPU visible to the process. Without a GPU, it skips the test, or fails it if
// MILLRACE_REQUIRE_GPU=1.
func openCUDA(t testing.TB) device.Device {
	t.Helper()
	d, err := cuda.Open(cuda.Options{Library: os.Getenv("MILLRACE_KERNELS")})
	if errors.Is(err, device.ErrUnavailable) && os.Getenv("MILLRACE_REQUIRE_GPU") != "1" {
		t.Skipf("SKIPPED, NO GPU: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClean(t, d) })
	return d
}

func closeClean(t testing.TB, d device.Device) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Errorf("closing the device: %v", err)
	}
}

// newPipeline creates a pipeline that is closed before its device.
func newPipeline(t testing.TB, d device.Device, o streams.Options) *streams.Pipeline {
	t.Helper()
	if o.Lanes == 0 {
		o.Lanes = 3
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = 1 << 20
	}
	if o.BatchPayloads == 0 {
		o.BatchPayloads = 8192
	}
	if o.ScratchLimit == 0 {
		o.ScratchLimit = 64 << 20
	}
	if o.Operators == nil {
		o.Operators = operators(t, "crc32c,minhash?hashes=8")
	}
	p, err := streams.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing the pipeline: %v", err)
		}
	})
	return p
}

func acquire(t testing.TB, p *streams.Pipeline, rows [][]byte) *streams.Batch {
	t.Helper()
	b, err := p.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if !b.Append(row) {
			t.Fatalf("payload %d of %d bytes does not fit", i, len(row))
		}
	}
	return b
}

func submit(t testing.TB, p *streams.Pipeline, rows [][]byte) *streams.Batch {
	t.Helper()
	b := acquire(t, p, rows)
	if err := b.Submit(streams.ClosedByBytes); err != nil {
		t.Fatal(err)
	}
	return b
}

func wantResults(t testing.TB, b *streams.Batch, ops []operator.Operator, rows [][]byte) {
	t.Helper()
	expect(ops, rows).check(t, b)
}

// expected holds payloads and their results, computed by the operators' references.
type expected struct {
	ops     []operator.Operator
	rows    [][]byte
	results [][]byte // indexed by operator
}

func expect(ops []operator.Operator, rows [][]byte) *expected {
	e := &expected{ops: ops, rows: rows}
	for _, op := range ops {
		var want []byte
		for _, row := range rows {
			want = op.AppendReference(want, row)
		}
		e.results = append(e.results, want)
	}
	return e
}

func (e *expected) check(t testing.TB, b *streams.Batch) {
	t.Helper()
	if err := b.Err(); err != nil {
		t.Fatalf("batch failed: %v", err)
	}
	for i, op := range e.ops {
		if got := b.Results(i); !bytes.Equal(got, e.results[i]) {
			t.Errorf("%s over %d payloads differs from the reference", op, len(e.rows))
		}
	}
}

// someRows returns n random payloads of up to maximum bytes.
func someRows(seed uint64, n, maximum int) [][]byte {
	rows := make([][]byte, n)
	for i := range rows {
		rows[i] = corpus.Bytes(seed+uint64(i), (i*7919)%(maximum+1))
	}
	return rows
}
