package memory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"millrace/internal/frame"
)

// budget returns a budget that limits messages and submitted batches to limit bytes each. frames reports whether messages may be frames.
func budget(t *testing.T, limit int64, frames bool) *Budget {
	t.Helper()
	w := worker(t)
	if frames {
		w.Split.Framing = frame.NewlineDelimited
	}
	b, err := New(w)
	if err != nil {
		t.Fatal(err)
	}
	b.Limit, b.submittedLimit = limit, limit
	return b
}

// taking takes memory in its own goroutine. It returns a channel that receives the result.
func taking(ctx context.Context, b *Budget, bytes int64) <-chan bool {
	took := make(chan bool, 1)
	go func() { took <- b.Take(ctx, nil, bytes) }()
	synctest.Wait()
	return took
}

// awaiting waits for a turn in its own goroutine. It returns a channel that receives the result.
func awaiting(ctx context.Context, turn *Turn, over <-chan struct{}) <-chan error {
	got := make(chan error, 1)
	go func() { got <- turn.Await(ctx, over) }()
	synctest.Wait()
	return got
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestTakeServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, 100, false)
		if !b.Take(t.Context(), nil, 60) {
			t.Fatal("Take doesn't take free memory")
		}
		short := b.Short()
		large, small := taking(t.Context(), b, 90), taking(t.Context(), b, 10)
		if len(large)+len(small) != 0 {
			t.Error("a small waiter overtook a large one, or a large one exceeded the budget")
		}
		if !isClosed(short) || !isClosed(b.Short()) {
			t.Error("Short does not report the waiters")
		}
		if b.TakeFrame(&Frame{}, 1, false) {
			t.Error("a frame overtook the waiters")
		}
		b.Give(nil, 49, 0)
		synctest.Wait()
		if len(large)+len(small) != 0 {
			t.Error("a waiter was served without free memory")
		}
		b.Give(nil, 11, 0)
		synctest.Wait()
		if len(large) != 1 || len(small) != 1 {
			t.Error("a waiter wasn't served although memory was free")
		}
		if isClosed(b.Short()) {
			t.Error("Short reports a waiter, but there is none")
		}
		if m := b.Memory(); m.Limit != 100 || m.Used != 100 || m.Waits != 2 {
			t.Errorf("%+v, want 100 of 100 used after 2 waits", m)
		}
	})
}

// TestTakeAcceptsAnySinglePayload checks that a payload larger than the whole budget gets memory once no other payload holds memory.
func TestTakeAcceptsAnySinglePayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, 100, false)
		b.Add(nil, 1, 0)
		huge := taking(t.Context(), b, 1000)
		if len(huge) != 0 {
			t.Fatal("Take didn't wait for the other payloads")
		}
		b.Give(nil, 1, 0)
		synctest.Wait()
		if len(huge) != 1 {
			t.Fatal("Take waits although no other memory is in use")
		}
		next := taking(t.Context(), b, 1)
		if len(next) != 0 {
			t.Error("another payload took memory at the same time")
		}
		b.Give(nil, 1000, 0)
		synctest.Wait()
		if len(next) != 1 {
			t.Error("the next payload didn't get memory")
		}
	})
}

// TestTakeEndsWithItsContext checks that a waiter that stops waiting takes nothing and no longer blocks later waiters.
func TestTakeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, 100, false)
		b.Add(nil, 50, 0)
		ctx, cancel := context.WithCancel(t.Context())
		large, small := taking(ctx, b, 90), taking(t.Context(), b, 50)
		cancel()
		synctest.Wait()
		if <-large {
			t.Error("the canceled Take has taken memory")
		}
		if len(small) != 1 || !<-small {
			t.Error("a payload that fits still waits")
		}
		if m := b.Memory(); m.Used != 100 || isClosed(b.Short()) {
			t.Errorf("%+v, want 100 used and no waiter", m)
		}
	})
}

func TestReceiptsNeverWait(t *testing.T) {
	t.Parallel()
	b := budget(t, 1, false)
	if b.KeepReceipts(3); b.Memory().Used != 3*receiptBytes {
		t.Errorf("%d bytes are used for three receipts", b.Memory().Used)
	}
	if b.KeepReceipts(-3); b.Memory().Used != 0 {
		t.Errorf("%d bytes are used without receipts", b.Memory().Used)
	}
}

// TestIdleBuffersAreBounded keeps and drops buffers, both one at a time and concurrently.
func TestIdleBuffersAreBounded(t *testing.T) {
	t.Parallel()
	b := budget(t, 1, false)
	b.idleLimit = 100_000
	kept := make([]int64, 50)
	for round := range 4 {
		sum := int64(0)
		for i := range kept {
			size := int64((i%7 + 1) * 3000 * (round%2 + 1))
			if before := kept[i]; b.Keep(&kept[i], size) != (kept[i] == size) || kept[i] == 0 && size <= before {
				t.Fatalf("%d bytes are recorded for a buffer of %d", kept[i], size)
			}
		}
		for _, size := range kept {
			sum += size
		}
		if idle := b.Memory().Idle; idle != sum || sum > b.idleLimit || sum < b.idleLimit/2 {
			t.Errorf("round %d: %d bytes are kept, %d are counted, want at most %d and no less than half", round, sum, idle, b.idleLimit)
		}
	}
}

// TestABatchAwaitsRoom checks that a batch may exceed the limit of submitted batches, and that Await takes no memory. The end of a
// pipeline or of a context ends the wait.
func TestABatchAwaitsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, 100, false)
		never, over := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.NewTurn(1).Await(ctx, never); err != nil {
			t.Fatal(err)
		}
		b.Add(nil, 0, 250)
		first, second := awaiting(t.Context(), b.NewTurn(1), never), awaiting(t.Context(), b.NewTurn(1), never)
		lost, ended := awaiting(t.Context(), b.NewTurn(1), over), awaiting(ctx, b.NewTurn(1), never)
		close(over)
		cancel()
		synctest.Wait()
		if len(lost) != 1 || <-lost != nil {
			t.Error("the end of a pipeline does not end the wait")
		}
		if len(ended) != 1 || !errors.Is(<-ended, context.Canceled) {
			t.Error("the end of the context does not end the wait, or is not an error")
		}
		b.Give(nil, 0, 150)
		synctest.Wait()
		if len(first)+len(second) != 0 {
			t.Error("a packer continued beyond the limit")
		}
		b.Give(nil, 0, 1)
		synctest.Wait()
		if len(first) != 1 || len(second) != 1 {
			t.Error("a packer still waits below the limit")
		}
		if m := b.Memory(); m.Submitted != 99 {
			t.Errorf("%d bytes are submitted, want 99", m.Submitted)
		}
	})
}

// TestAFrameAwaitsMemory checks that the next frame waits while messages exceed the memory, until a submitted batch releases memory.
// The remaining records of a frame in memory don't wait.
func TestAFrameAwaitsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, 100, true)
		turn := b.NewTurn(1)
		begins := func() bool {
			got := awaiting(t.Context(), turn, nil)
			if len(got) == 1 {
				turn.End(nil)
				return true
			}
			b.Give(nil, 0, 1) // the last submitted batch
			synctest.Wait()
			if len(got) != 1 {
				t.Error("Await waits although no batch will release memory")
			}
			turn.End(nil)
			return false
		}
		b.Add(nil, 101, 0)
		if !begins() {
			t.Error("Await waits although no batch will release memory")
		}
		b.Add(nil, 0, 1)
		if begins() {
			t.Error("Await exceeds the memory although a batch will release some")
		}
		b.Add(nil, 0, 1)
		turn.MidFrame.Store(true)
		if !begins() {
			t.Error("the rest of a frame waits")
		}
		turn.MidFrame.Store(false)
		b.Give(nil, 1, 0)
		if !begins() {
			t.Error("Await waits although memory is free")
		}
	})
}

// TestFramesExceedTheMemoryOneAtATime checks that only one packer of a pipeline begins a batch with a frame that exceeds the memory.
// The next packer waits until that frame's memory is released, even while no batch is submitted.
func TestFramesExceedTheMemoryOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, 1, true)
		b.Add(nil, 1, 0)
		first, second, other := b.NewTurn(1), b.NewTurn(1), b.NewTurn(2)
		if err := errors.Join(first.Await(t.Context(), nil), other.Await(t.Context(), nil)); err != nil {
			t.Fatal(err)
		}
		other.End(nil)
		reserved := awaiting(t.Context(), second, nil)
		if len(reserved) != 0 {
			t.Error("a second batch may begin with a frame while the first packer has not opened its frame")
		}
		f := &Frame{}
		if b.TakeFrame(f, 10, false) || !b.TakeFrame(f, 10, true) {
			t.Errorf("a frame of %d bytes is not opened beyond the limit, or is opened ahead", f.Bytes)
		}
		first.End(f)
		synctest.Wait()
		if len(reserved) != 0 {
			t.Error("a second batch may begin with a frame while the first frame exceeds the memory")
		}
		b.DropFrame(f)
		synctest.Wait()
		if len(reserved) != 1 || b.overdrawn != 0 || b.Memory().Used != 1 {
			t.Errorf("the second batch waits although nothing is in flight: %+v", b.Memory())
		}
	})
}

// TestShares checks that one of several holders leaves memory to the others, and that a holder that waits for its share makes no packer
// submit batches early.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, 100, true)
		take := func(s *Share, bytes int64) <-chan bool {
			took := make(chan bool, 1)
			go func() { took <- b.Take(t.Context(), s, bytes) }()
			synctest.Wait()
			return took
		}
		has := func(took <-chan bool) bool {
			select {
			case ok := <-took:
				return ok
			default:
				return false
			}
		}
		first := b.NewShare()
		if !has(take(first, 90)) {
			t.Fatal("a single share has no limit")
		}
		b.Give(first, 60, 0)
		second := b.NewShare()
		waits := take(first, 30) // 30 are used, and 70 remain
		if !has(waits) {
			t.Error("30 of 70 free bytes aren't given")
		}
		waits = take(first, 1)
		if isClosed(b.Short()) {
			t.Error("a wait for the share counts as a lack of memory")
		}
		if has(waits) {
			t.Error("a share of 60 grows, and 40 bytes remain free")
		}
		if !has(take(second, 10)) || b.TakeFrame(&Frame{Share: first}, 1, false) || !b.TakeFrame(&Frame{Share: second}, 1, false) {
			t.Error("the limit of a share must not affect the other share, and must hold for frames")
		}
		b.Give(first, 20, 0)
		synctest.Wait()
		if !has(waits) {
			t.Error("after a release, the wait must end")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool, 1)
		go func() { ended <- b.Take(ctx, first, 50) }()
		synctest.Wait()
		cancel()
		if <-ended {
			t.Error("a cancelled wait has taken memory")
		}
		waits = take(first, 49) // 52 are used
		if has(waits) {
			t.Error("the share may not grow to 90")
		}
		b.Give(second, 10, 0)
		second.Close()
		synctest.Wait()
		if !has(waits) {
			t.Error("without other shares, there is no limit")
		}
		if used := b.Memory().Used; used != 91 {
			t.Errorf("%d bytes are used, want 91", used)
		}
	})
}

// TestALimitedPayloadIsNotStarved shows that small payloads of a share don't overtake a large one of the same share that waits, as with the
// partitions of one shard.
func TestALimitedPayloadIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, 100, false)
		s := b.NewShare()
		b.NewShare()
		b.Add(s, 50, 0)
		took := func(bytes int64) <-chan bool {
			took := make(chan bool, 1)
			go func() { took <- b.Take(t.Context(), s, bytes) }()
			synctest.Wait()
			return took
		}
		large, small := took(25), took(10)
		b.Give(s, 10, 0)
		synctest.Wait()
		if len(large) > 0 || len(small) > 0 {
			t.Error("with 40 of 100 bytes used, the share can't grow by 25, and the small payload must wait for the large one")
		}
		b.Give(s, 5, 0)
		synctest.Wait()
		if len(large) == 0 || len(small) > 0 {
			t.Errorf("the large payload is served: %v, the small one: %v", len(large) > 0, len(small) > 0)
		}
		b.Give(s, 60, 0)
		<-small
	})
}
