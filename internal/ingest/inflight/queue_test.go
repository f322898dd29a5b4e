package inflight

import (
	"context"
	"testing"
	"testing/synctest"
)

// waiting puts deliveries of the given sizes in its own goroutine. The function in returns the number of queued
// deliveries once all goroutines block.
func waiting(t *testing.T, q *Queue, sizes ...int) (in func() int) {
	t.Helper()
	n := 0
	go func() {
		for _, size := range sizes {
			if !q.Put(t.Context(), Delivery{Msg: &paperMsg{data: make([]byte, size)}}) {
				return
			}
			n++
		}
	}()
	return func() int {
		synctest.Wait()
		return n
	}
}

func testQueue(limit int) *Queue { return new(Pool).NewQueue(nil, limit, nil) }

func getOne(t *testing.T, q *Queue) {
	t.Helper()
	if _, ok := q.Get(); !ok {
		t.Fatal("nothing waits")
	}
}

// TestQueueIsBounded shows that the queue limits number and bytes, and accepts a single payload of any size.
func TestQueueIsBounded(t *testing.T) {
	const half = queueBytes / 2
	for name, c := range map[string]struct {
		sizes []int
		want  []int // number of queued deliveries, first before any take and then after each take
	}{
		"small":          {[]int{1, 1, 1, 1, 1}, []int{4, 5}},
		"empty":          {[]int{0, 0, 0, 0, 0}, []int{4, 5}},
		"large":          {[]int{half, half, half, half}, []int{2, 3, 4}},
		"too large":      {[]int{4 * half, 4 * half, 1}, []int{1, 2, 3}},
		"behind a small": {[]int{1, 4 * half, 1}, []int{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := testQueue(4)
				in := waiting(t, q, c.sizes...)
				for taken, want := range c.want {
					if got := in(); got != want {
						t.Errorf("%d were put when %d had been taken, want %d", got, taken, want)
					}
					getOne(t, q)
				}
			})
		})
	}
}

// TestQueueCountsHeaders shows that headers count like payloads, because the queue holds both in memory.
func TestQueueCountsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, put := testQueue(4), 0
		go func() {
			for range 3 {
				if q.Put(t.Context(), Delivery{Msg: &paperMsg{}, HeaderBytes: queueBytes / 2}) {
					put++
				}
			}
		}()
		if synctest.Wait(); put != 2 {
			t.Errorf("%d were put, want 2", put)
		}
		getOne(t, q)
		if synctest.Wait(); put != 3 {
			t.Errorf("%d were put after one was taken, want 3", put)
		}
	})
}

// TestQueueLetsGo shows that Put stops waiting for space when ctx ends, and no longer counts its delivery.
func TestQueueLetsGo(t *testing.T) {
	for name, size := range map[string]int{"for bytes": queueBytes, "for a place": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := testQueue(1)
				d := Delivery{Msg: &paperMsg{data: make([]byte, size)}}
				if !q.Put(t.Context(), d) {
					t.Fatal("there was room")
				}
				ctx, end := context.WithCancel(t.Context())
				put := make(chan bool, 1)
				go func() { put <- q.Put(ctx, d) }()
				synctest.Wait()
				end()
				if <-put {
					t.Error("it was put")
				}
				getOne(t, q)
				if held := q.bytes; held != 0 {
					t.Errorf("%d bytes are held in an empty queue", held)
				}
			})
		})
	}
}
