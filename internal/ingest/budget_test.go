package ingest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestBudgetHoldsBackUntilSomeIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget{left: 100}
		never := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.await(ctx, never); err != nil {
			t.Fatalf("a full budget: %v", err)
		}
		b.take(250) // a batch may overdraw it

		got := make(chan error, 2)
		for range 2 {
			go func() { got <- b.await(ctx, never) }()
		}
		synctest.Wait()
		b.give(150)
		synctest.Wait()
		if len(got) != 0 {
			t.Error("somebody went on with nothing left")
		}
		b.give(1)
		synctest.Wait()
		if len(got) != 2 || <-got != nil || <-got != nil {
			t.Error("not everybody went on with some left")
		}

		b.take(1)
		go func() { got <- b.await(ctx, never) }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("await = %v, want the context's error", err)
		}
		close(never)
		if err := b.await(context.Background(), never); err != nil {
			t.Errorf("await of a pipeline that is over = %v, want nil: its Acquire says why", err)
		}
	})
}
