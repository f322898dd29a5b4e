package conformance

import (
	"context"
	"fmt"
	"math"

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

// notifyAcrossStreams checks that tokens arrive in the order in which the streams reach them, whatever the order of the
// calls.
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

// notifyManyStreams checks that, with many streams notifying at once, each token arrives once and the tokens of each
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

// notifyAfterWork checks that when a token arrives, the work before it is done and its result may be read.
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

// waitContextDone checks that a wait ends with its context and takes no token.
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
