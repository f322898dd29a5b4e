//go:build cgo

package cuda

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// faultTick is the interval at which a waiting goroutine checks the device. After a sticky fault, CUDA calls no host
// functions: outstanding tokens never arrive, and nothing else reports the fault.
const faultTick = 100 * time.Millisecond

// waiter receives completions. The library queues tokens and makes an eventfd readable. Go reads the fd through the
// netpoller, so waiting occupies no thread.
type waiter struct {
	file        *os.File     // duplicate of the library's eventfd; nil before init
	outstanding atomic.Int64 // number of notifications whose tokens were not returned

	waitMu  sync.Mutex // held during a wait; guards the fields below
	tokens  [64]uint64 // tokens taken from the library's queue
	next, n int        // tokens[next:n] are not yet returned
	counter [8]byte    // buffer for reading the eventfd; its value doesn't matter
	watched <-chan struct{}
	unwatch func() bool // stops the registration of the current context

	deadlineMu sync.Mutex // serializes wake and arm
}

func (w *waiter) init(fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.file = os.NewFile(uintptr(own), "completions") // the library made the fd non-blocking, so the netpoller accepts it
	return nil
}

// close ends the current wait and all later waits.
func (w *waiter) close() {
	if w.file != nil {
		_ = w.file.Close() // the file was only read, so nothing can be lost
	}
}

// wake makes a wait check its conditions again.
func (w *waiter) wake() {
	w.deadlineMu.Lock()
	defer w.deadlineMu.Unlock()
	if w.file != nil {
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // fails only after the file is closed, which also wakes the wait
	}
}

// arm sets the next tick as the read deadline. If cause returns true, arm doesn't change the deadline, because wake has
// already made the next read return at once.
func (w *waiter) arm(cause func() bool) {
	w.deadlineMu.Lock()
	defer w.deadlineMu.Unlock()
	if !cause() {
		_ = w.file.SetReadDeadline(time.Now().Add(faultTick)) // fails only after the file is closed
	}
}

// watch makes sure that wake is called when ctx is done. Consecutive waits with the same context share one
// registration, so not every token needs one.
func (w *waiter) watch(ctx context.Context) {
	if w.watched == ctx.Done() && w.unwatch != nil {
		return
	}
	if w.unwatch != nil {
		w.unwatch()
	}
	w.watched, w.unwatch = ctx.Done(), context.AfterFunc(ctx, w.wake)
}

// WaitCompletion implements device.Device.
func (g *gpu) WaitCompletion(ctx context.Context) (uint64, error) {
	const op = "wait completion"
	w := &g.waiter
	w.waitMu.Lock()
	defer w.waitMu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if token, ok := w.pop(); ok {
			return token, nil
		}
		if !g.hold() {
			return 0, g.errClosed(op, "device")
		}
		w.next, w.n = 0, g.lib.completionDrain(g.handle, w.tokens[:])
		g.release()
		if w.n > 0 {
			continue
		}
		if err := g.Err(); err != nil {
			return 0, err
		}
		g.await(ctx)
	}
}

func (w *waiter) pop() (token uint64, ok bool) {
	if w.next == w.n {
		return 0, false
	}
	token = w.tokens[w.next]
	w.next++
	w.outstanding.Add(-1)
	return token, true
}

// await returns when a token may have arrived, a tick has passed, or another condition of the caller has changed. On a
// tick with outstanding work it checks the device for a fault.
func (g *gpu) await(ctx context.Context) {
	w := &g.waiter
	w.watch(ctx)
	w.arm(func() bool { return ctx.Err() != nil || g.lost.Load() != nil })
	_, err := w.file.Read(w.counter[:])
	if !errors.Is(err, os.ErrDeadlineExceeded) || w.outstanding.Load() == 0 {
		return
	}
	g.pollFault()
}
