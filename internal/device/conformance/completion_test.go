package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"millrace/internal/device"
)

var completionTests = []test{
	{"OrderWithinStream", notifyWithinStream},
	{"OrderAcrossStreams", notifyAcrossStreams},
	{"ManyStreams", notifyManyStreams},
	{"AnyToken", notifyAnyToken},
	{"AfterTheWork", notifyAfterWork},
	{"ContextDone", waitContextDone},
}

// notifyWithinStream checks that thousands of tokens on one stream arrive once each, in order.
func notifyWithinStream(r *rig) {
	const count = 5000
	s := r.stream("s")
	sent := make(chan error, 1)
	go func() { sent <- notifyRange(s, 0, count) }()
	for i := range uint64(count) {
		r.wantTokens(i)
	}
	r.ok(<-sent)
}

// notifyRange enqueues count notifications with consecutive tokens, starting at first.
func notifyRange(s device.Stream, first uint64, count int) error {
	for i := range uint64(count) {
		if err := s.Notify(first + i); err != nil {
			return fmt.Errorf("notify %d: %w", first+i, err)
		}
	}
	return nil
}

// notifyAcrossStreams checks that tokens arrive in the order in which the streams reach them, regardless of the order
// of the calls.
func notifyAcrossStreams(r *rig) {
	a, b, c := r.stream("a"), r.stream("b"), r.stream("c")
	afterA, afterB := r.event(), r.event()
	open := r.gate(a)
	r.ok(a.Notify(1), a.Record(afterA), b.Wait(afterA), b.Notify(2), b.Record(afterB), c.Notify(3)) // nothing delays C
	r.ok(c.Wait(afterB), c.Notify(4))
	r.wantTokens(3)
	open()
	r.wantTokens(1, 2, 4)
}

// notifyManyStreams checks notifications from many streams at once. Each token arrives once, and the tokens of each
// stream arrive in order.
func notifyManyStreams(r *rig) {
	const lanes, count = 8, 600
	sent := make(chan error, lanes)
	for lane := range uint64(lanes) {
		s := r.stream(fmt.Sprintf("lane-%d", lane))
		go func() { sent <- notifyRange(s, lane<<32, count) }()
	}
	var next [lanes]uint64
	for range lanes * count {
		token := r.nextToken()
		lane := token >> 32
		if lane >= lanes || token&math.MaxUint32 != next[lane] {
			r.Fatalf("token %#x: not the next one of any stream, which are %v", token, next)
		}
		next[lane]++
	}
	for range lanes {
		r.ok(<-sent)
	}
}

func notifyAnyToken(r *rig) {
	s := r.stream("s")
	tokens := []uint64{0, math.MaxUint64, 1 << 63, 0, 7, 7} // no token is special, and tokens may repeat
	for _, token := range tokens {
		r.ok(s.Notify(token))
	}
	r.wantTokens(tokens...)
}

// notifyAfterWork checks that when a token arrives, earlier work is done and its result may be read.
func notifyAfterWork(r *rig) {
	const length = 1 << 20
	s := r.stream("s")
	m, in, out, e := r.memory(length), r.host(length, 0), r.host(length, 0), r.event()
	for round := range byte(10) {
		paint(in.Bytes(), round+1)
		r.ok(s.CopyIn(m, in), s.CopyOut(out, m), s.Record(e), s.Notify(uint64(round)))
		r.wantTokens(uint64(round))
		r.wantReached("the token came before the event that was recorded first", e)
		r.wantAll("result at its token", out, round+1)
	}
}

// waitContextDone checks that a wait ends with its context and consumes no token.
func waitContextDone(r *rig) {
	s := r.stream("s")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := r.dev.WaitCompletion(ctx)
		ended <- err
	}()
	cancel()
	r.fails("wait with a canceled context", <-ended, context.Canceled)
	r.fails("wait with a context canceled before", failure(r.dev.WaitCompletion(ctx)), context.Canceled)
	r.ok(s.Notify(5))
	r.wantTokens(5)
}

var concurrentTests = []test{
	{"Lanes", concurrentLanes},
	{"OneStream", concurrentOneStream},
	{"Objects", concurrentObjects},
}

// atOnce runs fn in n goroutines and ends the test at the first error.
func (r *rig) atOnce(n int, fn func(i int) error) {
	r.Helper()
	failed := make(chan error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := fn(i); err != nil {
				failed <- fmt.Errorf("goroutine %d: %w", i, err)
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		r.Error(err)
	}
}

// concurrentLanes checks that goroutines with one stream each can share a pool and a kernel, as a pipeline's lanes do.
func concurrentLanes(r *rig) {
	const lanes, rounds, length = 6, 30, 256 << 10
	p, k := r.pool(keepAll), r.kernel("crc32c", nil)
	work := make([]lane, lanes)
	for i := range work {
		rows := bytesOf(uint64(i)*10, 1000*i, 0, 33, 5000)
		work[i] = lane{r.stream(fmt.Sprintf("lane-%d", i)), p, r.host(length, byte(i+1)), r.host(length, 0), r.newBatch(k, rows), crcRecords(rows)}
	}
	r.atOnce(lanes, func(i int) error {
		for round := range rounds {
			if err := work[i].round(length >> (round % 8)); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	})
}

type lane struct {
	s       device.Stream
	p       device.Pool
	in, out device.HostBuffer
	batch   *batch
	want    []byte
}

// round copies length bytes through memory from the pool and launches a batch on them.
func (l *lane) round(length int) error {
	m, err := l.p.Alloc(l.s, length)
	if err != nil {
		return err
	}
	b := l.batch
	err = errors.Join(
		l.s.CopyIn(m, l.in.Slice(0, length)), l.s.CopyOut(l.out, m), l.p.Free(l.s, m),
		l.s.CopyIn(b.args.Offsets, b.offsets), l.s.CopyIn(b.args.Rows, b.rows), l.s.Launch(b.kernel, b.args),
		l.s.CopyOut(b.out, b.args.Result), l.s.Synchronize())
	if err != nil {
		return err
	}
	if !bytes.Equal(l.out.Bytes()[:length], l.in.Bytes()[:length]) {
		return fmt.Errorf("%d bytes came back changed", length)
	}
	if got := b.out.Bytes()[:len(l.want)]; !bytes.Equal(got, l.want) {
		return fmt.Errorf("crc32c gives %x, want %x", got, l.want)
	}
	return nil
}

// concurrentOneStream checks that many goroutines may enqueue work on one stream. The calls of each goroutine keep
// their order.
func concurrentOneStream(r *rig) {
	const writers, rounds, length = 6, 50, 4096
	s := r.stream("shared")
	memory, out := r.memory(writers*length), r.host(writers*length, 0)
	r.atOnce(writers, func(i int) error {
		part := memory.Slice(i*length, length)
		for round := range rounds {
			err := errors.Join(s.Fill(part, byte(round)), s.Fill(part, byte(100+i)), s.CopyOut(out.Slice(i*length, length), part))
			if err != nil {
				return err
			}
		}
		return s.Synchronize()
	})
	for i := range writers {
		r.wantAll("a writer's part", out.Slice(i*length, length), byte(100+i))
	}
}

// concurrentObjects checks that objects may be created and closed from many goroutines while other objects work.
func concurrentObjects(r *rig) {
	p := r.pool(keepAll)
	r.atOnce(6, func(i int) error {
		for range 20 {
			if err := r.shortLife(p, byte(i+1)); err != nil {
				return err
			}
		}
		return nil
	})
}

// shortLife creates a stream, an event, a buffer and memory, uses them, and closes them.
func (r *rig) shortLife(p device.Pool, value byte) error {
	s, noStream := r.dev.NewStream("short")
	e, noEvent := r.dev.NewEvent(0)
	b, noBuffer := r.dev.AllocHost(4096)
	if err := errors.Join(noStream, noEvent, noBuffer); err != nil {
		return err
	}
	m, err := p.Alloc(s, 4096)
	if err != nil {
		return err
	}
	if err := errors.Join(s.Fill(m, value), s.CopyOut(b, m), p.Free(s, m), s.Record(e), s.Synchronize()); err != nil {
		return err
	}
	if !bytes.Equal(b.Bytes(), bytes.Repeat([]byte{value}, 4096)) {
		return fmt.Errorf("4096 bytes of %#x came back changed", value)
	}
	return errors.Join(e.Close(), s.Close(), r.dev.FreeHost(b))
}
