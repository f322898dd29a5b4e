package faults

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go"
)

// hanging is a prefix of payloads. If a worker is built with the tag faults, its kernels don't end on such a payload.
const hanging = "endless\n"

// TestDeviceHangs publishes some payloads on which a kernel never ends, among ordinary payloads. Each such payload
// hangs the device of every worker that receives it, while other batches complete. The worker must exit with status 70,
// and later workers must identify the payloads. Only these payloads have no result.
func TestDeviceHangs(t *testing.T) {
	eachMode(t, func(r *rig) {
		hangs := times(3, 1)
		r.failWorkers()
		r.set("MILLRACE_BATCH_DEADLINE_MIN=2s", "MILLRACE_BATCH_DEADLINE_MAX=3s", "MILLRACE_BATCH_PAYLOADS=64", "MILLRACE_DRAIN_TIMEOUT=5s")
		r.serve(1)
		s := r.supervise()
		r.until("the worker is ready", func() bool { return s.current().isReady() })
		others := r.inputsOf(func(rng *rand.Rand) int { return rng.IntN(1 << 10) })
		f := r.feed(hangs*times(4000, 1000), func(i int) *nats.Msg {
			m := others(i)
			if each := times(4000, 1000); i%each == each/2 {
				m.Data = append([]byte(hanging), m.Data...)
			}
			return m
		})
		f.wait()
		r.awaitFinished()
		r.until("the worker after the last that ended is ready", func() bool { return s.current().isReady() })
		s.retire()
		codes := s.exitCodes()
		for _, code := range codes {
			if code != 70 {
				r.t.Errorf("a worker ended with status %d, want 70 for all: %v", code, codes)
				break
			}
		}
		if len(codes) < hangs {
			r.t.Errorf("%d workers ended for %d payloads that hang the device", len(codes), hangs)
		}
		a := r.mustAudit(1)
		if a.dead != hangs {
			r.t.Errorf("%d dead letters, want those of the %d payloads that hang the device", a.dead, hangs)
		}
		r.enter(fmt.Sprintf("a kernel that does not end (%d workers ended)", len(codes)), hangs, a)
	})
}
