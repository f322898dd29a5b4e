package faults

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestPublishAcksLost drops one in twenty of the server's publish acknowledgements. The worker publishes those results
// again, and the stream keeps one copy of each result.
func TestPublishAcksLost(t *testing.T) {
	eachMode(t, func(r *rig) {
		const oneIn = 20
		payloads := times(100_000, 2000)
		r.env = append(r.env, "MILLRACE_BATCH_PAYLOADS=16") // otherwise one acknowledgement would cover all results
		r.serve(1)
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(r.seed, oneIn))
		lost := 0
		p := r.proxy()
		p.Lose(func(_ string, body []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			if !isPublishAck(body) || rng.IntN(oneIn) > 0 {
				return false
			}
			lost++
			return true
		})
		r.join(r.startWorkerAt(p.URL()))
		r.feed(payloads, r.inputsOf(func(rng *rand.Rand) int { return rng.IntN(300) })).wait()
		r.close("publish acknowledgements lost, 5 %", payloads)
		mu.Lock()
		defer mu.Unlock()
		if lost == 0 {
			r.t.Error("no acknowledgement was lost, so the test shows nothing")
		}
	})
}

// isPublishAck reports whether a message is the server's acknowledgement of a stored result.
func isPublishAck(body []byte) bool {
	return bytes.HasPrefix(body, []byte(`{"stream":"`+resultStream+`"`))
}
