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

// faultTick is how often a wait asks the device whether it still works. After a sticky fault CUDA calls no host
// function, so a token that has not come never will, and nothing else would say so.
const faultTick = 100 * time.Millisecond

// waiter is the receiving end of completions. The library queues tokens and makes an eventfd readable; the fd is read
// through the netpoller, so waiting holds no thread.
type waiter struct {
	file        *os.File     // a duplicate of the library's eventfd; nil before init
	outstanding atomic.Int64 // notified and not yet returned

	waitMu  sync.Mutex // one wait at a time; guards the fields below
	tokens  [64]uint64 // taken off the library's queue
	next, n int        // tokens[next:n] are not yet returned
	counter [8]byte    // what reading the eventfd gives; its value does not matter
	watched <-chan struct{}
	unwatch func() bool // stops the watch on the context whose Done is watched

	deadlineMu sync.Mutex // orders wake and arm
}

func (w *waiter) init(fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.file = os.NewFile(uintptr(own), "completions") // non-blocking, as the library made it: so the netpoller takes it
	return nil
}

// close ends a wait that is under way, for good.
func (w *waiter) close() {
	if w.file != nil {
		_ = w.file.Close() // nothing was written: nothing can be lost
	}
}

// wake makes a wait look again at what it waits for.
func (w *waiter) wake() {
	w.deadlineMu.Lock()
	defer w.deadlineMu.Unlock()
	if w.file != nil {
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // fails only once the file is closed, which wakes it too
	}
}

// arm sets the tick, unless there is already cause to look again: then the read that follows returns at once.
func (w *waiter) arm(cause func() bool) {
	w.deadlineMu.Lock()
	defer w.deadlineMu.Unlock()
	if !cause() {
		_ = w.file.SetReadDeadline(time.Now().Add(faultTick)) // as in wake
	}
}

// watch arranges for wake to be called when ctx is done. Waits with one context share the arrangement, so that it
// is not made anew for each token.
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
func (d *gpu) WaitCompletion(ctx context.Context) (uint64, error) {
	const op = "wait completion"
	w := &d.waiter
	w.waitMu.Lock()
	defer w.waitMu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if token, ok := w.pop(); ok {
			return token, nil
		}
		if !d.hold() {
			return 0, d.errClosed(op, "device")
		}
		w.next, w.n = 0, d.lib.completionDrain(d.handle, w.tokens[:])
		d.release()
		if w.n > 0 {
			continue
		}
		if err := d.Err(); err != nil {
			return 0, err
		}
		d.await(ctx)
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

// await returns when there may be a token, a tick has passed, or something has changed that the caller must look at.
// On a tick with work outstanding it asks the device for a fault.
func (d *gpu) await(ctx context.Context) {
	w := &d.waiter
	w.watch(ctx)
	w.arm(func() bool { return ctx.Err() != nil || d.lost.Load() != nil })
	_, err := w.file.Read(w.counter[:])
	if !errors.Is(err, os.ErrDeadlineExceeded) || w.outstanding.Load() == 0 {
		return
	}
	d.glance()
}
