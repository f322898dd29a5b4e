package streams_test

import (
	"testing"
	"testing/synctest"

	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// A repeated or unknown completion must not complete the slot's current submission, because the device still accesses
// the buffers.
func TestOnlyItsOwnCompletionEndsAFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := spyOn(openSim(t, sim.Options{Cost: sim.Units(unit)}))
		d.twice, d.tokens = true, make(chan uint64, 16)
		p := newPipeline(t, d, streams.Options{Lanes: 1, Schedule: streams.Schedule{Name: "one batch", Buffers: 1}, Operators: operators(t, "crc32c")})
		for i := range 5 {
			for _, token := range []uint64{0, 1, 1 << 40, 1<<63 + 77777, ^uint64(0)} {
				d.tokens <- token // the token belongs to no batch
			}
			open := d.gate(t, "lane-0")
			rows := someRows(uint64(i), 5, 100)
			b := submit(t, p, rows)
			synctest.Wait() // the repeated completion of the last submission and the unknown completions have arrived
			select {
			case b := <-p.Completed():
				t.Fatalf("batch %d came back (%v) with its stream stalled", b.ReadRecord().Batch, b.Err())
			default:
			}
			open()
			wantResults(t, <-p.Completed(), operators(t, "crc32c"), rows)
			b.Release()
		}
		if n := stats(t, p).InHand; n != 0 {
			t.Errorf("%d batches not released at the end", n)
		}
	})
}

// A pipeline that is closed with work in flight leaves completions on its device. The next pipeline must ignore these
// completions.
func TestCompletionsOfAClosedPipelineAreNotTheNextOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := sim.Fault{Kind: sim.LateCompletion, Nth: 1, Delay: 50 * unit}
		d := spyOn(openSim(t, sim.Options{Cost: sim.Units(unit), Faults: []sim.Fault{late}}))
		o := streams.Options{Lanes: 1, Operators: operators(t, "crc32c")}
		old := newPipeline(t, d, o)
		submit(t, old, someRows(1, 5, 100))
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		p := newPipeline(t, d, o)
		open := d.gate(t, "lane-0")
		rows := someRows(2, 5, 100)
		b := submit(t, p, rows)
		synctest.Wait()
		select {
		case b := <-p.Completed():
			t.Fatalf("batch %d came back (%v) with its stream stalled", b.ReadRecord().Batch, b.Err())
		default:
		}
		open()
		wantResults(t, <-p.Completed(), operators(t, "crc32c"), rows)
		b.Release()
	})
}
