package faults

import (
	"fmt"
	"slices"
	"testing"
)

// exitLost is the exit status of a worker that has lost its device.
const exitLost = 70

// TestDeviceFailsEverything makes the device of one worker after another fail under load. From some batch on, the
// device fails every operation. Each worker exits with status 70 and gives up no payload, although payloads are
// delivered far more often than the limit on tries.
func TestDeviceFailsEverything(t *testing.T) {
	need(t)
	t.Parallel()
	for _, c := range []struct{ kind, fault string }{
		{"launch", "device refuses every launch"},
		{"foreign", "device fails with an unknown code"},
		{"lost", "device is lost, by no kernel"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			eachMode(t, func(r *rig) {
				ends := times(20, 3)
				r.failWorkers()
				r.set("MILLRACE_MAX_DELIVER=3")
				r.serve(1)
				r.work(1)
				f := r.feed(endless, r.inputs())
				r.awaitResults(1)
				r.retire()
				well := r.env
				for range ends {
					r.env = append(slices.Clone(well), fmt.Sprintf("FAILING_DEVICE=%s@%d", c.kind, 4+r.rng.IntN(30)))
					w := r.startWorker()
					w.expected.Store(true)
					r.until("the worker has ended", w.hasEnded)
					if code := w.cmd.ProcessState.ExitCode(); code != exitLost {
						r.t.Errorf("%s ended with status %d, want %d", w.name, code, exitLost)
					}
				}
				r.env = well
				r.work(1)
				f.finish()
				a := r.close(c.fault, ends)
				if a.dead > 0 {
					r.t.Errorf("%d good payloads were given up", a.dead)
				}
			})
		})
	}
}

// TestDeviceFailsFromTheStart uses a device that computes everything incorrectly. The worker must exit before it takes
// any payload.
func TestDeviceFailsFromTheStart(t *testing.T) {
	eachMode(t, func(r *rig) {
		ends := times(10, 2)
		r.failWorkers()
		r.serve(1)
		r.work(1)
		f := r.feed(2000, r.inputs())
		r.awaitResults(1)
		r.retire()
		f.wait()
		well := r.env
		r.env = append(slices.Clone(well), "FAILING_DEVICE=invalid@1")
		for range ends {
			before := r.mustConsumed()
			w := r.startWorker()
			w.expected.Store(true)
			r.until("the worker has ended", w.hasEnded)
			if code := w.cmd.ProcessState.ExitCode(); code != exitLost {
				r.t.Errorf("%s ended with status %d, want %d", w.name, code, exitLost)
			}
			if _, said := w.said("does not compute correctly"); !said {
				r.t.Errorf("%s did not log why it ended", w.name)
			}
			if after := r.mustConsumed(); after.delivered != before.delivered {
				r.t.Errorf("%s took payloads: %+v became %+v", w.name, before, after)
			}
		}
		r.env = well
		r.work(1)
		if a := r.close("device fails from the start", ends); a.dead > 0 {
			r.t.Errorf("%d good payloads were given up", a.dead)
		}
	})
}
