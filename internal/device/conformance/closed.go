package conformance

import (
	"context"

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
	r.ok(err)
	open, p, e, k := r.stream("open"), r.pool(keepAll), r.event(), r.kernel("crc32c", nil)
	m, b, pooled := r.memory(64), r.host(64, 1), r.take(p, open, 64)
	args := r.newBatch(k, [][]byte{[]byte("x")}).args
	r.ok(open.Record(e), s.CopyIn(m, b), s.Close()) // waits for the copy
	r.ok(s.Close())
	for what, err := range map[string]error{
		"copy in": s.CopyIn(m, b), "copy out": s.CopyOut(b, m), "fill": s.Fill(m, 1), "launch": s.Launch(k, args),
		"record": s.Record(e), "wait": s.Wait(e), "notify": s.Notify(1), "synchronize": s.Synchronize(),
		"pool alloc": failure(p.Alloc(s, 64)), "pool free": p.Free(s, pooled),
	} {
		r.fails(what+" on a closed stream", err, device.ErrClosed)
	}
	r.ok(open.CopyOut(b, m))
	r.freeAll(p, open, pooled) // the refused Free changed nothing
	r.wantAll("what was copied before the stream closed", b, 1)
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

func closedPool(r *rig) {
	s := r.stream("s")
	p, err := r.dev.NewPool(keepAll)
	r.ok(err)
	r.freeAll(p, s, r.take(p, s, 4096))
	r.ok(p.Close(), p.Close())
	r.fails("alloc from a closed pool", failure(p.Alloc(s, 4096)), device.ErrClosed)
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
