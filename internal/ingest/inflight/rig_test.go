package inflight

import (
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/ingest/natstest"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

const patience = natstest.Patience

func hostDevice(t testing.TB) device.Device {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 2, Kernels: operator.HostKernels()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}

func crc32c(t testing.TB) []operator.Operator {
	t.Helper()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// work returns the settings of a worker that runs crc32c.
func work(t testing.TB) memory.Worker {
	t.Helper()
	return memory.Worker{Messages: memory.Messages{Format: operator.JSON, Operators: crc32c(t)}}
}

// plenty returns a pool with so much memory that nothing waits for memory.
func plenty(t testing.TB, pipe *streams.Pipeline) *Pool {
	t.Helper()
	pool, err := NewPool([]*streams.Pipeline{pipe}, work(t))
	if err != nil {
		t.Fatal(err)
	}
	pool.Limit = 1 << 40
	return pool
}

// testPipeline returns a small pipeline that is closed before its device.
func testPipeline(t testing.TB, d device.Device, o streams.Options) *streams.Pipeline {
	t.Helper()
	o.Operators, o.BatchBytes, o.ScratchLimit = crc32c(t), 1<<20, 64<<20
	if o.Lanes == 0 {
		o.Lanes = 2
	}
	if o.BatchPayloads == 0 {
		o.BatchPayloads = 1024
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

// testOwner implements Owner.
type testOwner struct {
	packed []*Batch
	unread []Delivery
}

func (o *testOwner) Packed(g *Batch)               { o.packed = append(o.packed, g) }
func (o *testOwner) Encode(*Batch, *streams.Batch) {}
func (o *testOwner) Unread(d Delivery)             { o.unread = append(o.unread, d) }

// testPacker returns a packer with one queue.
func testPacker(t testing.TB, pool *Pool, pipe *streams.Pipeline, linger time.Duration, window *Window) (*Packer, *Queue) {
	t.Helper()
	feed := NewFeed()
	f := pool.NewPacker(pipe, feed, linger)
	q := pool.NewQueue(&testOwner{}, QueueMax, window)
	feed.Attach(q)
	return f, q
}
