package sim_test

import (
	"bytes"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

func TestEventAcrossStreams(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	a, b := r.stream("a"), r.stream("b")
	host, mem, back := r.host(4), r.memory(4), r.host(4)
	e, end := r.event(), r.event()
	copy(host.Bytes(), "new!")

	r.ok(a.CopyIn(mem, host)) // runs from 0 to 1 ms
	r.ok(a.Record(e))
	r.ok(b.Wait(e))
	r.ok(b.CopyOut(back, mem)) // would start at 0 without the wait
	r.ok(b.Record(end))
	if _, err := end.Time(); err == nil {
		t.Error("the event has a time before the stream reached it")
	} else {
		r.is(err, device.ErrNotReady)
	}
	r.ok(b.Synchronize())
	for want, ev := range map[time.Duration]device.Event{ms: e, 2 * ms: end} {
		if at, err := ev.Time(); err != nil || at != want {
			t.Errorf("event at %v, %v; want %v", at, err, want)
		}
	}
	if got := string(back.Bytes()); got != "new!" {
		t.Errorf("copied out %q, want the bytes that were copied in", got)
	}
}

// TestWaitKeepsItsMark checks that recording an event again doesn't change an earlier wait.
func TestWaitKeepsItsMark(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	a, b := r.stream("a"), r.stream("b")
	mem, host := r.memory(4), r.host(4)
	e := r.event()
	r.ok(a.CopyIn(mem, host)) // runs from 0 to 1 ms
	r.ok(a.Record(e))
	r.ok(b.Wait(e))
	r.ok(b.Notify(7))
	shut := r.gate(a)
	r.ok(a.Record(e)) // the stream reaches this record after the gate opens
	r.completes(7)
	r.now(ms)
	if done, err := e.Done(); err != nil || done {
		t.Errorf("done %v, %v: the second record is behind the gate", done, err)
	}
	shut()
	if done, err := e.Done(); err != nil || !done {
		t.Errorf("done %v, %v: the gate is open", done, err)
	}
}

// TestEffectsComeAtTheEnd checks that data moves when an operation ends, not when it is enqueued or starts. One stream
// reads while another writes, which panics in the invariants build.
func TestEffectsComeAtTheEnd(t *testing.T) {
	if device.Invariants {
		t.Skip("UNDER THE INVARIANTS TAG UNORDERED USE PANICS: SEE TestMisusePanics OF HOST")
	}
	r := open(t, sim.Options{Cost: sim.Model{CopyIn: sim.Cost{Latency: 10 * ms}, CopyOut: sim.Cost{Latency: ms}}})
	a, b := r.stream("a"), r.stream("b")
	mem, in, back := r.memory(3), r.host(3), r.host(3)
	r.ok(a.Fill(mem, 'o'))
	r.ok(a.Synchronize())
	copy(in.Bytes(), "nnn")
	r.ok(a.CopyIn(mem, in))
	r.ok(b.CopyOut(back, mem)) // ends at 1 ms, in the middle of the copy in
	r.ok(b.Synchronize())
	if got := back.Bytes(); !bytes.Equal(got, []byte("ooo")) {
		t.Errorf("read %q while the copy in was in progress, want the old bytes", got)
	}
	r.ok(a.Synchronize())
	r.ok(b.CopyOut(back, mem))
	r.ok(b.Synchronize())
	if got := back.Bytes(); !bytes.Equal(got, []byte("nnn")) {
		t.Errorf("read %q after the copy in, want the new bytes", got)
	}
}

// TestPollingEnds checks that each Done advances the clock by PollCost, so a polling loop reaches the event.
func TestPollingEnds(t *testing.T) {
	const polls = 5
	r := open(t, sim.Options{Cost: sim.Units(polls * sim.PollCost)})
	s, e := r.stream("s"), r.event()
	if done, err := e.Done(); err != nil || !done {
		t.Errorf("an event never recorded: done %v, %v", done, err)
	}
	r.ok(s.CopyIn(r.memory(1), r.host(1)))
	r.ok(s.Record(e))
	for i := 1; ; i++ {
		done, err := e.Done()
		r.ok(err)
		if done != (i >= polls) {
			t.Fatalf("poll %d: done %v", i, done)
		}
		if done {
			break
		}
	}
	r.now((polls + 1) * sim.PollCost)
	if at, err := e.Time(); err != nil || at != (polls+1)*sim.PollCost {
		t.Errorf("reached at %v, %v", at, err)
	}
}

// TestWorkStartsNoEarlierThanItsEnqueueing checks that work doesn't start before the time at which it is enqueued.
func TestWorkStartsNoEarlierThanItsEnqueueing(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	a, b := r.stream("a"), r.stream("b")
	mem, host := r.memory(1), r.host(1)
	r.ok(a.CopyIn(mem, host))
	r.ok(a.Synchronize())
	r.ok(b.CopyOut(host, mem))
	r.ok(b.Synchronize())
	spans := r.dev.Trace()
	if s := spans[1]; s.Enqueued != ms || s.Start != ms || s.End != 2*ms {
		t.Errorf("span %+v, want enqueued and started at 1 ms", s)
	}
}
