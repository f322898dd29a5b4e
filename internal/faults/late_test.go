package faults

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// In each of these tests a worker is away for longer than the result stream's duplicate window.
const (
	lateAckWait = 3 * time.Second
	lateDeliver = 4 // maximum number of deliveries
	lateWindow  = 12 * time.Second
	lateAway    = 20 * time.Second // frozen or cut off
	lateStart   = 14 * time.Second // after a kill
	lateLead    = 1000             // lead of the feed; enough for workers to hold inputs during the long wait
	lateFeed    = 10_000           // maximum number of inputs that the short form stores during the long wait
)

// serveLate starts a server whose result stream has a short duplicate window. It configures workers so that they nearly
// always hold inputs.
func (r *rig) serveLate() {
	r.t.Helper()
	r.operators("crc32c,minhash?k=24&hashes=128")
	r.set("MILLRACE_ACK_WAIT=" + lateAckWait.String())
	r.set("MILLRACE_MAX_DELIVER=" + strconv.Itoa(lateDeliver))
	r.lead = lateLead
	r.serve(1)
	r.Create(jetstream.StreamConfig{
		Name: resultStream, Subjects: []string{"results.>", "deadletter.>"}, Duplicates: lateWindow, AllowBatchPublish: true,
	})
}

// pass waits until d has passed since the given time, so that the duplicate window has ended. In the short form, it
// limits the load during that time.
func (r *rig) pass(since time.Time, d time.Duration) {
	r.t.Helper()
	if !isFull() {
		r.max.Store(r.fed.Load() + lateFeed)
		defer r.max.Store(endless)
	}
	r.until("the result stream no longer has the earlier ids", func() bool { return time.Since(since) > d })
}

// send sends a signal that doesn't end the process.
func (p *process) send(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// TestWorkerFrozenBeyondTheWindow stops a process and continues it. The process doesn't detect the pause.
func TestWorkerFrozenBeyondTheWindow(t *testing.T) {
	eachMode(t, func(r *rig) {
		freezes := times(5, 1)
		r.serveLate()
		r.work(2)
		f := r.feed(endless, r.inputs())
		for range freezes {
			r.awaitResults(1 + r.rng.IntN(2000))
			r.awaitWork(r.workers[0])
			r.workers[0].send(syscall.SIGSTOP)
			r.pass(time.Now(), lateAway)
			r.workers[0].send(syscall.SIGCONT)
			r.until("the worker is back", r.workers[0].isReady)
			r.awaitResults(1)
		}
		f.finish()
		r.closeLate("worker frozen beyond the duplicate window", freezes)
	})
}

// TestConnectionCutBeyondTheWindow cuts off one of two workers. It reconnects the worker after the IDs of its inputs
// have left the duplicate window.
func TestConnectionCutBeyondTheWindow(t *testing.T) {
	cutOff(t, "connection cut beyond the duplicate window",
		func(p *natstest.Proxy) { p.Refuse(true) }, func(p *natstest.Proxy) { p.Refuse(false) })
}

// TestConnectionSilentBeyondTheWindow delays a worker's messages like a network that loses packets. The worker doesn't
// detect the delay, and the delayed messages are dropped in the end.
func TestConnectionSilentBeyondTheWindow(t *testing.T) {
	cutOff(t, "connection silent beyond the duplicate window",
		func(p *natstest.Proxy) { p.Up.Close() }, func(p *natstest.Proxy) { p.Up.Drop() })
}

// cutOff starts a fault at the proxy in front of one of two workers. It ends the fault after the duplicate window.
func cutOff(t *testing.T, name string, begin, end func(*natstest.Proxy)) {
	eachMode(t, func(r *rig) {
		cuts := times(5, 1)
		r.serveLate()
		p := r.proxy()
		r.join(r.startWorkerAt(p.URL()))
		r.work(1)
		f := r.feed(endless, r.inputs())
		for range cuts {
			r.awaitResults(1 + r.rng.IntN(2000))
			r.awaitWork(r.workers[0])
			begin(p)
			r.pass(time.Now(), lateAway)
			end(p)
			r.until("the worker is back", r.workers[0].isReady)
			r.awaitResults(1)
		}
		f.finish()
		r.closeLate(name, cuts)
	})
}

// TestWorkersRestartedBeyondTheWindow kills all workers. It starts new workers after the IDs of the killed workers'
// inputs have left the duplicate window.
func TestWorkersRestartedBeyondTheWindow(t *testing.T) {
	eachMode(t, func(r *rig) {
		kills := times(5, 1)
		r.serveLate()
		r.work(2)
		f := r.feed(endless, r.inputs())
		for range kills {
			r.awaitResults(1 + r.rng.IntN(2000))
			for _, w := range r.workers {
				r.awaitWork(w)
			}
			for _, w := range r.workers {
				w.kill()
			}
			r.workers = nil
			r.pass(time.Now(), lateStart)
			r.work(2)
			r.awaitResults(1)
		}
		f.finish()
		r.closeLate("all workers killed, others started beyond the duplicate window", kills)
	})
}

// closeLate does the same as close, and also fails the test if a payload was given up.
func (r *rig) closeLate(fault string, times int) {
	r.t.Helper()
	if a := r.close(fault, times); a.dead > 0 {
		r.t.Errorf("%d good payloads became dead letters", a.dead)
	}
}
