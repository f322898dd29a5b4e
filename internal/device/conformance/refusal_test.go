package conformance

import (
	"context"
	"time"

	"millrace/internal/device"
)

var invalidTests = []test{
	{"Sizes", invalidSizes},
	{"TooMuch", tooMuchMemory},
	{"Copies", invalidCopies},
	{"Kernels", invalidKernels},
	{"Launches", invalidLaunches},
	{"Foreign", foreignObjects},
}

func invalidSizes(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	for _, n := range []int{0, -1, -1 << 62} {
		r.fails("alloc", failure(r.dev.Alloc(n)), device.ErrInvalid)
		r.fails("alloc host", failure(r.dev.AllocHost(n)), device.ErrInvalid)
		r.fails("pool alloc", failure(p.Alloc(s, n)), device.ErrInvalid)
	}
	r.fails("a pool with a negative limit", failure(r.dev.NewPool(device.PoolOptions{Limit: -1})), device.ErrInvalid)
	r.fails("a pool with a negative release threshold", failure(r.dev.NewPool(device.PoolOptions{ReleaseThreshold: -1})), device.ErrInvalid)
	r.fails("trim to a negative size", p.Trim(-1), device.ErrInvalid)
}

// tooMuchMemory checks that an allocation larger than the device's memory is refused and that the device still works.
func tooMuchMemory(r *rig) {
	const wholeRack = 1 << 46 // 64 TiB
	s, p := r.stream("s"), r.pool(device.PoolOptions{})
	r.fails("alloc", failure(r.dev.Alloc(wholeRack)), device.ErrOutOfMemory)
	r.fails("alloc of twice the device's memory", failure(r.dev.Alloc(int(2*r.dev.Info().Memory))), device.ErrOutOfMemory)
	r.fails("alloc host", failure(r.dev.AllocHost(wholeRack)), device.ErrOutOfMemory)
	r.fails("pool alloc", failure(p.Alloc(s, wholeRack)), device.ErrOutOfMemory)

	m, b := r.memory(4096), r.host(4096, 1)
	r.ok(s.CopyIn(m, b))
	r.freeAll(p, s, r.take(p, s, 4096))
}

// invalidCopies checks that a copy to a destination that is too short is refused before anything is written.
func invalidCopies(r *rig) {
	s, m, b := r.stream("s"), r.memory(4096), r.host(4096, 1)
	r.fails("copy in of 11 bytes into 10", s.CopyIn(m.Slice(0, 10), b.Slice(0, 11)), device.ErrInvalid)
	r.fails("copy out of 11 bytes into 10", s.CopyOut(b.Slice(0, 10), m.Slice(0, 11)), device.ErrInvalid)
	r.fails("copy in to no memory", s.CopyIn(device.Memory{}, b), device.ErrInvalid)
	r.fails("copy out to no memory", s.CopyOut(device.HostBuffer{}, m), device.ErrInvalid)
	r.sync(s)
	r.wantAll("a buffer after refused copies", b, 1)
}

func invalidKernels(r *rig) {
	for _, name := range []string{"", "nosuch", "CRC32C", "crc32c "} {
		r.fails("kernel "+name, failure(r.dev.Kernel(name, nil)), device.ErrNotFound)
	}
	r.fails("crc32c with a parameter", failure(r.dev.Kernel("crc32c", []byte{0})), device.ErrInvalid)
	good := minhashParams(24, 128, 1)
	for what, block := range map[string][]byte{
		"no parameters": nil, "half a block": good[:8], "a byte short": good[:11], "a byte long": append(good[:12:12], 0),
		"k 0": minhashParams(0, 128, 1), "k 257": minhashParams(257, 128, 1),
		"hashes 0": minhashParams(24, 0, 1), "hashes 1025": minhashParams(24, 1025, 1),
	} {
		r.fails("minhash with "+what, failure(r.dev.Kernel("minhash", block)), device.ErrInvalid)
	}
	r.kernel("minhash", minhashParams(256, 1024, 1<<32-1)) // the largest permitted values
	tooWide := append([]byte{41, 0, 0, 0}, minhashParams(25, 24, 1)...)
	r.fails("neardup with 41 bands of 25 rows", failure(r.dev.Kernel("neardup", tooWide)), device.ErrInvalid)
}

// invalidLaunches checks that a launch with too little memory of any kind is refused. The same launch with enough
// memory must work.
func invalidLaunches(r *rig) {
	s, k := r.stream("s"), r.kernel("minhash", minhashParams(24, 16, 1))
	rows := text(8, 100, 0, 70_000, 17)
	b := r.newBatch(k, rows)
	want := r.launch(s, k, rows, 1)
	short := func(what string, change func(a *device.LaunchArgs) *device.Memory) {
		args := b.args
		part := change(&args)
		if part.Bytes == 0 {
			return // the kernel needs no memory of this kind
		}
		part.Bytes--
		r.fails("launch with "+what+" a byte short", s.Launch(k, args), device.ErrInvalid)
		*part = device.Memory{}
		r.fails("launch with no "+what, s.Launch(k, args), device.ErrInvalid)
	}
	short("rows", func(a *device.LaunchArgs) *device.Memory { return &a.Rows })
	short("offsets", func(a *device.LaunchArgs) *device.Memory { return &a.Offsets })
	short("scratch", func(a *device.LaunchArgs) *device.Memory { return &a.Scratch })
	short("result", func(a *device.LaunchArgs) *device.Memory { return &a.Result })
	for _, shape := range []device.Shape{{Rows: -1}, {Rows: 4, Bytes: -1}} {
		args := b.args
		args.Shape = shape
		r.fails("launch of a negative shape", s.Launch(k, args), device.ErrInvalid)
	}
	b.enqueue(s, 2)
	r.sync(s)
	b.check("the launch after the refused ones", want)
}

// Objects that no device created.
type (
	foreignStream struct{ device.Stream }
	foreignEvent  struct{ device.Event }
	foreignKernel struct{ device.Kernel }
)

func (foreignStream) Name() string                        { return "foreign" }
func (foreignEvent) Time() (time.Duration, error)         { return 0, nil }
func (foreignKernel) Name() string                        { return "foreign" }
func (foreignKernel) Needs(device.Shape) (n device.Needs) { return n }

// foreignObjects checks that nil and objects of another device are refused.
func foreignObjects(r *rig) {
	s, p := r.stream("s"), r.pool(keepAll)
	m := r.take(p, s, 4096)
	for _, e := range []device.Event{foreignEvent{}, nil} {
		r.fails("record of a foreign event", s.Record(e), device.ErrInvalid)
		r.fails("wait for a foreign event", s.Wait(e), device.ErrInvalid)
	}
	for _, k := range []device.Kernel{foreignKernel{}, nil} {
		r.fails("launch of a foreign kernel", s.Launch(k, device.LaunchArgs{}), device.ErrInvalid)
	}
	for _, other := range []device.Stream{foreignStream{}, nil} {
		r.fails("pool alloc on a foreign stream", failure(p.Alloc(other, 4096)), device.ErrInvalid)
		r.fails("pool free on a foreign stream", p.Free(other, m), device.ErrInvalid)
		r.fails("gate on a foreign stream", failure(r.dev.(device.Gater).Gate(other)), device.ErrInvalid)
	}
	r.freeAll(p, s, m)
}

var closedTests = []test{
	{"Stream", closedStream},
	{"Event", closedEvent},
	{"Kernel", closedKernel},
	{"Device", closedDevice},
}

func closedStream(r *rig) {
	s, err := r.dev.NewStream("s")
	r.ok(err)
	open, p, e, k := r.stream("open"), r.pool(keepAll), r.event(), r.kernel("crc32c", nil)
	m, b, pooled := r.memory(64), r.host(64, 1), r.take(p, open, 64)
	args := r.newBatch(k, [][]byte{[]byte("x")}).args
	r.ok(open.Record(e), s.CopyIn(m, b), s.Close()) // Close waits for the copy
	r.ok(s.Close())
	for what, err := range map[string]error{
		"copy in": s.CopyIn(m, b), "copy out": s.CopyOut(b, m), "fill": s.Fill(m, 1), "launch": s.Launch(k, args),
		"record": s.Record(e), "wait": s.Wait(e), "notify": s.Notify(1), "synchronize": s.Synchronize(),
		"pool alloc": failure(p.Alloc(s, 64)), "pool free": p.Free(s, pooled),
	} {
		r.fails(what+" on a closed stream", err, device.ErrClosed)
	}
	r.ok(open.CopyOut(b, m))
	r.freeAll(p, open, pooled) // the refused Free had no effect
	r.wantAll("bytes copied before the stream closed", b, 1)
}

func closedEvent(r *rig) {
	s := r.stream("s")
	e, err := r.dev.NewEvent(device.Timed)
	r.ok(err)
	r.ok(s.Record(e), s.Synchronize(), e.Close(), e.Close())
	for what, err := range map[string]error{
		"record": s.Record(e), "wait": s.Wait(e), "done": failure(e.Done()), "time": failure(e.Time()),
	} {
		r.fails(what+" of a closed event", err, device.ErrClosed)
	}
}

func closedKernel(r *rig) {
	s := r.stream("s")
	k, err := r.dev.Kernel("crc32c", nil)
	r.ok(err)
	args := r.newBatch(k, [][]byte{[]byte("x")}).args
	r.ok(k.Close(), k.Close())
	r.fails("launch of a closed kernel", s.Launch(k, args), device.ErrClosed)
}

func closedDevice(r *rig) {
	r.ok(r.dev.Close(), r.dev.Close())
	for what, err := range map[string]error{
		"new stream": failure(r.dev.NewStream("s")), "new event": failure(r.dev.NewEvent(0)), "alloc": failure(r.dev.Alloc(1)),
		"alloc host": failure(r.dev.AllocHost(1)), "new pool": failure(r.dev.NewPool(keepAll)),
		"kernel": failure(r.dev.Kernel("crc32c", nil)), "check": r.dev.Check(context.Background()),
		"wait completion": failure(r.dev.WaitCompletion(context.Background())),
	} {
		r.fails(what+" on a closed device", err, device.ErrClosed)
	}
}
