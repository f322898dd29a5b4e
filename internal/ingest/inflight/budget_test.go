package inflight

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// asking takes n bytes in its own goroutine and returns a channel that receives the result.
func asking(ctx context.Context, b *budget, n int64) <-chan error {
	got := make(chan error, 1)
	go func() { got <- b.take(ctx, n) }()
	synctest.Wait()
	return got
}

// plenty returns a pool with so much memory that nothing waits for memory.
func plenty() *Pool { return &Pool{holdings: holdings{memory: budget{limit: 1 << 40}}} }

func TestBudgetServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		if err := b.take(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
		easy := b.isShort()
		large, small := asking(t.Context(), b, 90), asking(t.Context(), b, 10)
		if len(large)+len(small) != 0 {
			t.Error("a small one overtook a large one, or a large one exceeded the budget")
		}
		if !isOver(easy) || !isOver(b.isShort()) {
			t.Error("nobody is told that somebody waits")
		}
		b.Give(49)
		synctest.Wait()
		if len(large)+len(small) != 0 {
			t.Error("somebody went on without room")
		}
		b.Give(11)
		synctest.Wait()
		if len(large) != 1 || len(small) != 1 {
			t.Error("not everybody went on with room")
		}
		if isOver(b.isShort()) {
			t.Error("somebody is said to wait, and nobody does")
		}
		if limit, used, waits := b.read(); limit != 100 || used != 100 || waits != 2 {
			t.Errorf("%d of %d are used after %d waits, want 100 of 100 after 2", used, limit, waits)
		}
	})
}

// TestBudgetTakesAnySinglePayload shows that a payload larger than the whole budget gets memory once no other payload
// holds memory.
func TestBudgetTakesAnySinglePayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		b.Force(1)
		huge := asking(t.Context(), b, 1000)
		if len(huge) != 0 {
			t.Fatal("it did not wait for the others")
		}
		b.Give(1)
		synctest.Wait()
		if len(huge) != 1 {
			t.Fatal("it waits with nothing else held")
		}
		next := asking(t.Context(), b, 1)
		if len(next) != 0 {
			t.Error("another went beside it")
		}
		b.Give(1000)
		synctest.Wait()
		if len(next) != 1 {
			t.Error("the next did not follow")
		}
	})
}

// TestBudgetIsAwaited shows that await takes no memory. The end of a pipeline or of a context ends the wait.
func TestBudgetIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		never, over := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.await(ctx, never); err != nil {
			t.Fatal(err)
		}
		b.Force(250) // a batch may exceed the budget
		got, ended := make(chan error, 3), make(chan error, 1)
		for range 2 {
			go func() { got <- b.await(t.Context(), never) }()
		}
		go func() { got <- b.await(t.Context(), over) }()
		go func() { ended <- b.await(ctx, never) }()
		synctest.Wait()
		close(over)
		cancel()
		synctest.Wait()
		if len(got) != 1 || <-got != nil {
			t.Error("the end of a pipeline does not end the wait for room: its Take says why")
		}
		if len(ended) != 1 || !errors.Is(<-ended, context.Canceled) {
			t.Error("the end of the context does not end the wait, or is not said")
		}
		b.Give(150)
		synctest.Wait()
		if len(got) != 0 {
			t.Error("somebody went on with nothing left")
		}
		b.Give(1)
		synctest.Wait()
		if len(got) != 2 || <-got != nil || <-got != nil {
			t.Error("not everybody went on with some left")
		}
		if _, used, _ := b.read(); used != 99 {
			t.Errorf("%d are used, want 99", used)
		}
	})
}

// TestBudgetLetsGo shows that a waiter that stops waiting takes nothing and no longer blocks later waiters.
func TestBudgetLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: 100}
		b.Force(50)
		ctx, cancel := context.WithCancel(t.Context())
		large, small := asking(ctx, b, 90), asking(t.Context(), b, 50)
		cancel()
		synctest.Wait()
		if err := <-large; !errors.Is(err, context.Canceled) {
			t.Errorf("take = %v, want the context's error", err)
		}
		if len(small) != 1 || <-small != nil {
			t.Error("one that there is room for still waits")
		}
		if _, used, _ := b.read(); used != 100 {
			t.Errorf("%d are used, want 100", used)
		}
	})
}
