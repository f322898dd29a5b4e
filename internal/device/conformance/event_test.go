package conformance

import (
	"fmt"
	"runtime"
	"time"

	"millrace/internal/device"
)

var eventTests = []test{
	{"NeverRecorded", neverRecorded},
	{"Done", eventDone},
	{"DoneShowsCopies", doneShowsCopies},
	{"Synchronize", eventSynchronize},
	{"TimeErrors", timeErrors},
	{"TimeWithinNow", timeWithinNow},
	{"TimeAcrossStreams", timeAcrossStreams},
	{"TimeOfLatestRecord", timeOfLatestRecord},
	{"CloseWhilePending", closePendingEvent},
}

// clockSlack is the permitted error of a device that maps its own clock onto Now.
const clockSlack = time.Millisecond

// orderSlack is the permitted error of the interval between two events on the same device.
const orderSlack = 5 * time.Microsecond

// neverRecorded checks that an event that was never recorded is done and delays no stream. In the invariants build,
// waiting for such an event must panic.
func neverRecorded(r *rig) {
	s, e := r.stream("s"), r.event()
	r.wantReached("an event that was never recorded is not done", e)
	if device.Invariants {
		defer func() {
			if recover() == nil {
				r.Error("under the invariants tag, waiting for an event that was never recorded must panic")
			}
		}()
		err := s.Wait(e)
		r.Errorf("Wait returned %v", err)
		return
	}
	r.ok(s.Wait(e), s.Notify(1))
	r.wantTokens(1)
}

const allFlags = device.Timed | device.BlockingSync

func eventDone(r *rig) {
	s := r.stream("s")
	for flags := range allFlags + 1 {
		e := r.newEvent(flags)
		for range 3 { // an event can be recorded repeatedly
			open := r.gate(s)
			r.ok(s.Record(e))
			r.wantPending(fmt.Sprintf("flags %b: an event is done before its stream got there", flags), e)
			open()
			r.sync(s)
			r.wantReached(fmt.Sprintf("flags %b: an event is not done though its stream is", flags), e)
		}
	}
}

// doneShowsCopies checks that bytes copied out before an event are visible once Done returns true, without another
// device call.
func doneShowsCopies(r *rig) {
	const size = 1 << 20
	s, m := r.stream("s"), r.memory(size)
	in, out := r.host(size, 0), r.host(size, 0)
	for flags := range allFlags + 1 {
		e := r.newEvent(flags)
		for i := range byte(8) {
			want := 1 + i + 16*byte(flags)
			paint(in.Bytes(), want)
			r.ok(s.CopyIn(m, in), s.CopyOut(out, m), s.Record(e))
			for !r.done(e) {
				runtime.Gosched()
			}
			if got := out.Bytes(); got[0] != want || got[size-1] != want {
				r.Fatalf("flags %b: the event is done and its copy holds %d ... %d, want %d", flags, got[0], got[size-1], want)
			}
		}
	}
}

// eventSynchronize checks that Synchronize returns when the event is reached, whatever follows on the stream. It tests
// all flags.
func eventSynchronize(r *rig) {
	s := r.stream("s")
	for flags := range allFlags + 1 {
		e := r.newEvent(flags)
		r.ok(e.Synchronize(), s.Record(e))
		open := r.gate(s)
		r.ok(e.Synchronize())
		r.wantReached(fmt.Sprintf("flags %b: Synchronize returned before the event was reached", flags), e)
		open()
		r.sync(s)
	}
}

func timeErrors(r *rig) {
	s, timed, untimed := r.stream("s"), r.timedEvent(), r.event()
	r.fails("time of an event never recorded", failure(timed.Time()), device.ErrInvalid)
	open := r.gate(s)
	r.ok(s.Record(timed), s.Record(untimed))
	r.fails("time of an event not reached", failure(timed.Time()), device.ErrNotReady)
	r.fails("time of an untimed event", failure(untimed.Time()), device.ErrInvalid)
	open()
	r.sync(s)
	r.fails("time of an untimed event that was reached", failure(untimed.Time()), device.ErrInvalid)
}

// age advances the device's clock by more than its permitted error, so that an incorrect event time is detected. If no
// operation takes time, a virtual clock stands still, and all times must be equal.
func (r *rig) age(s device.Stream, b device.HostBuffer, m device.Memory) {
	r.Helper()
	start := r.dev.Now()
	for now := start; now-start < 5*clockSlack; {
		r.roundTrips(s, b, m)
		last := now
		if now = r.dev.Now(); now == last {
			return
		}
	}
}

// timeOf returns the time of an event that has been reached.
func (r *rig) timeOf(e device.Event) time.Duration {
	r.Helper()
	at, err := e.Time()
	r.ok(err)
	return at
}

// timeWithinNow checks that event times use the same scale as Now and follow the order of their stream.
func timeWithinNow(r *rig) {
	s := r.stream("s")
	m, b := r.memory(1<<20), r.host(1<<20, 1)
	events := make([]device.Event, 10)
	r.age(s, b, m)
	before := r.dev.Now()
	for i := range events {
		events[i] = r.timedEvent()
		r.ok(s.CopyIn(m, b), s.Record(events[i]))
	}
	r.sync(s)
	after := r.dev.Now()
	last := before - clockSlack
	for i, e := range events {
		at := r.timeOf(e)
		if at < last-orderSlack {
			r.Errorf("event %d at %v is before the lower limit %v", i, at, last)
		}
		last = at
	}
	if last > after+clockSlack {
		r.Errorf("the last event was at %v, but the stream was idle at %v", last, after)
	}
}

// timeAcrossStreams checks that an event on a waiting stream is later than the event that it waits for. Both must be
// later than the opening of the gate.
func timeAcrossStreams(r *rig) {
	a, b := r.stream("a"), r.stream("b")
	other, buf, m := r.stream("other"), r.host(1<<20, 1), r.memory(1<<20)
	first, second := r.timedEvent(), r.timedEvent()
	open := r.gate(a)
	r.ok(a.Record(first), b.Wait(first), b.Record(second))
	r.age(other, buf, m)
	opened := r.dev.Now()
	open()
	r.sync(b)
	after := r.dev.Now()
	one, two := r.timeOf(first), r.timeOf(second)
	if one < opened-clockSlack {
		r.Errorf("A's event behind the gate was at %v, before the gate opened at %v", one, opened)
	}
	if two > after+clockSlack {
		r.Errorf("B's event was at %v, but B was idle at %v", two, after)
	}
	if two < one-orderSlack {
		r.Errorf("B's event was at %v, before A's event at %v, although B waits for A", two, one)
	}
}

// timeOfLatestRecord checks that recording an event again discards its previous time.
func timeOfLatestRecord(r *rig) {
	s, e := r.stream("s"), r.timedEvent()
	r.ok(s.Record(e), s.Synchronize())
	first := r.timeOf(e)
	open := r.gate(s)
	r.ok(s.Record(e))
	r.fails("time of an event recorded again and not reached", failure(e.Time()), device.ErrNotReady)
	open()
	r.sync(s)
	if second := r.timeOf(e); second < first-orderSlack {
		r.Errorf("the second record was at %v, before the first at %v", second, first)
	}
}

// closePendingEvent checks that an event may be closed before its stream reaches it. Streams that wait for the event
// must still wait.
func closePendingEvent(r *rig) {
	a, b := r.stream("a"), r.stream("b")
	e, err := r.dev.NewEvent(0)
	r.ok(err)
	open := r.gate(a)
	r.ok(a.Record(e), b.Wait(e), e.Close(), a.Notify(1))
	open()
	r.sync(b)
	r.wantTokens(1)
}
