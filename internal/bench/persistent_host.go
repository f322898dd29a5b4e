package bench

import (
	"fmt"
	"runtime"
	"time"

	"millrace/internal/device"
)

// persistentSuffix follows the operator's name in the name of its persistent kernel.
const persistentSuffix = ":persistent"

// persistentIdle is the time without a payload after which a persistent kernel stops. A GPU's kernel has the same
// limit.
const persistentIdle = time.Second

// persistentHost is an operator's persistent kernel, for devices that use the host's memory. One launch processes
// payloads from a mailbox, which is its only row, until the host stops it.
type persistentHost struct {
	device.HostKernel               // the kernel of the operator
	idle              time.Duration // time without a payload after which the kernel stops
}

// Name implements device.HostKernel.
func (k persistentHost) Name() string { return k.HostKernel.Name() + persistentSuffix }

// Bind implements device.HostKernel.
func (k persistentHost) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := k.HostKernel.Bind(params)
	return persistentKernel{bound, k.idle}, err
}

type persistentKernel struct {
	device.BoundHostKernel
	idle time.Duration
}

// Needs implements device.BoundHostKernel. It returns the operator's needs for the mailbox's largest payload.
func (k persistentKernel) Needs(mailbox device.Shape) device.Needs {
	payload := max(mailbox.Bytes-mailboxHead, 0)
	return k.BoundHostKernel.Needs(device.Shape{Rows: 1, Bytes: payload, Longest: payload})
}

// Run implements device.BoundHostKernel.
func (k persistentKernel) Run(mailbox []byte, _ []uint32, scratch, result []byte, parallel device.Parallel) error {
	if len(mailbox) < mailboxHead {
		return fmt.Errorf("a mailbox of %d bytes: give at least %d", len(mailbox), mailboxHead)
	}
	words, payloads, offsets := wordsOf(mailbox), mailbox[mailboxHead:], make([]uint32, 2)
	for number := words.next(k.idle); number != mailboxStop; number = words.next(k.idle) {
		offsets[1] = words.bytes
		if err := k.BoundHostKernel.Run(payloads[:words.bytes], offsets, scratch, result, parallel); err != nil {
			return err
		}
		words.finished.Store(number)
	}
	return nil
}

// A persistent kernel sleeps for persistentNap after each persistentLooks unsuccessful reads of the mailbox. So an idle
// kernel leaves its core to other goroutines.
const (
	persistentLooks = 1000
	persistentNap   = 20 * time.Microsecond
)

// next waits for a payload and returns its number. It returns mailboxStop if the host has stored that value, or if no
// payload arrives within idle.
func (w *mailboxWords) next(idle time.Duration) uint64 {
	finished := w.finished.Load()
	var since time.Time // time of the first nap
	for looks := 1; ; looks++ {
		if posted := w.posted.Load(); posted != finished {
			return posted
		}
		if looks%persistentLooks != 0 {
			runtime.Gosched()
			continue
		}
		switch now := time.Now(); {
		case since.IsZero():
			since = now
		case now.Sub(since) > idle:
			return mailboxStop
		}
		time.Sleep(persistentNap)
	}
}
