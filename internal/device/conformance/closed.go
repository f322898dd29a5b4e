package conformance

import (
	"context"
	"errors"

	"millrace/internal/device"
)

var closedTests = []test{
	{"Stream", closedStream},
	{"Event", closedEvent},
	{"Pool", closedPool},
	{"Kernel", closedKernel},
	{"Device", closedDevice},
}

func closedStream(r *rig) {
	s, err := r.dev.NewStream("s")
	r.ok("new stream", err)
	open, p, e, k := r.stream("open"), r.pool(keepAll), r.event(), r.kernel("crc32c", nil)
	m, b, pooled := r.memory(64), r.host(64, 1), r.take(p, open, 64)
	args := r.newBatch(k, [][]byte{[]byte("x")}).args
	r.ok("record", open.Record(e))
	r.ok("copy in", s.CopyIn(m, b))
	r.ok("close", s.Close()) // waits for the copy
	r.ok("second close", s.Close())
	_, alloc := p.Alloc(s, 64)
	for what, err := range map[string]error{
		"copy in": s.CopyIn(m, b), "copy out": s.CopyOut(b, m), "fill": s.Fill(m, 1), "launch": s.Launch(k, args),
		"record": s.Record(e), "wait": s.Wait(e), "notify": s.Notify(1), "synchronize": s.Synchronize(),
		"pool alloc": alloc, "pool free": p.Free(s, pooled),
	} {
		r.fails(what+" on a closed stream", err, device.ErrClosed)
	}
	r.ok("copy out", open.CopyOut(b, m))
	r.freeAll(p, open, []device.Memory{pooled}) // the refused Free changed nothing
	r.wantAll("what was copied before the stream closed", b, 1)
}

func closedEvent(r *rig) {
	s := r.stream("s")
	e, err := r.dev.NewEvent(device.Timed)
	r.ok("new event", err)
	r.ok("record", s.Record(e))
	r.sync(s)
	r.ok("close", e.Close())
	r.ok("second close", e.Close())
	r.fails("record of a closed event", s.Record(e), device.ErrClosed)
	r.fails("wait for a closed event", s.Wait(e), device.ErrClosed)
	_, err = e.Done()
	r.fails("a closed event's done", err, device.ErrClosed)
	_, err = e.Time()
	r.fails("a closed event's time", err, device.ErrClosed)
}

func closedPool(r *rig) {
	s := r.stream("s")
	p, err := r.dev.NewPool(keepAll)
	r.ok("new pool", err)
	r.freeAll(p, s, []device.Memory{r.take(p, s, 4096)})
	r.ok("close", p.Close())
	r.ok("second close", p.Close())
	_, err = p.Alloc(s, 4096)
	r.fails("alloc from a closed pool", err, device.ErrClosed)
}

func closedKernel(r *rig) {
	s := r.stream("s")
	k, err := r.dev.Kernel("crc32c", nil)
	r.ok("kernel", err)
	args := r.newBatch(k, [][]byte{[]byte("x")}).args
	r.ok("close", k.Close())
	r.ok("second close", k.Close())
	r.fails("launch of a closed kernel", s.Launch(k, args), device.ErrClosed)
}

func closedDevice(r *rig) {
	r.ok("close", r.dev.Close())
	r.ok("second close", r.dev.Close())
	_, stream := r.dev.NewStream("s")
	_, event := r.dev.NewEvent(0)
	_, host := r.dev.AllocHost(1)
	_, memory := r.dev.Alloc(1)
	_, pool := r.dev.NewPool(keepAll)
	_, kernel := r.dev.Kernel("crc32c", nil)
	_, wait := r.dev.WaitCompletion(context.Background())
	for what, err := range map[string]error{
		"new stream": stream, "new event": event, "alloc host": host, "alloc": memory, "new pool": pool,
		"kernel": kernel, "wait completion": wait, "check": r.dev.Check(context.Background()),
	} {
		if !errors.Is(err, device.ErrClosed) {
			r.Errorf("%s on a closed device: got %v, want one that wraps %q", what, err, device.ErrClosed)
		}
	}
}
