package faults

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// These tests attack workers as another user of the server: with forged headers, a changed message size limit, and
// impersonated workers.

// forgedHeaders are headers that the server, the client library and the worker read in deliveries and in status
// messages. They are repeated, spelled in unusual ways, or in header blocks that end before the headers that the server
// adds.
var forgedHeaders = []string{
	"NATS/1.0\r\nNats-Pin-Id: x\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: x\r\nNats-Pin-Id: y\r\nnats-pin-id: z\r\n\r\n",
	"NATS/1.0\r\nNats-Pin-Id: x\r\n\r\nxx",
	"NATS/1.0\r\nNats-Pin-Id: x",
	"NATS/1.0\r\nA: b\r\n\r\nxx",
	"NATS/1.0\r\n\r\n",
	"NATS/1.0 423 Nats-Wrong-Pin-Id\r\n\r\n",
	"NATS/1.0\r\nStatus: 409\r\nStatus: 423\r\nDescription: Consumer Deleted\r\nNats-Pending-Messages: 1000000\r\nNats-Pending-Bytes: -1\r\n\r\n",
	"NATS/1.0\r\nMillrace-Sequence: 1\r\nMillrace-Stream: OTHER\r\ntraceparent: x\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n",
}

// TestForgedHeaders publishes inputs with forged headers among ordinary inputs.
func TestForgedHeaders(t *testing.T) {
	eachMode(t, func(r *rig) {
		rounds, ordinary := times(200, 10), times(300, 100)
		r.serve(1)
		r.work(2)
		n := 0
		for round := range rounds {
			var inputs []rawInput
			for i, block := range forgedHeaders {
				inputs = append(inputs, rawInput{subject: fmt.Sprintf("ingest.web.%d", i%7), header: block, payload: fmt.Appendf(nil, "%d %d", round, i)},
					rawInput{subject: fmt.Sprintf("ingest.web.%d", i%7), header: block})
			}
			if refused := r.publishRaw(inputs); len(refused) > 0 {
				r.t.Fatalf("the server refuses some inputs: %v", refused)
			}
			first := round * ordinary
			all := r.inputs()
			r.feed(ordinary, func(i int) *nats.Msg { return all(first + i) }).wait()
			n += len(inputs) + ordinary
		}
		r.until("every input is settled", r.isFinished)
		for _, w := range r.workers {
			if anew := r.mustMetric(w, "millrace_partition_restarts_total"); anew > 0 {
				r.t.Errorf("%s restarted partitions %.0f times, want 0", w.name, anew)
			}
		}
		if a := r.close("forged headers", rounds*2*len(forgedHeaders)); a.payloads != n || a.dead > 0 {
			r.t.Errorf("%d inputs are stored, want %d; %d dead letters", a.payloads, n, a.dead)
		}
	})
}

// TestMaxPayloadRaised makes the server reload its configuration while workers run. The server then accepts larger
// messages than it announced to the workers. Each large input is followed by small inputs.
func TestMaxPayloadRaised(t *testing.T) {
	eachMode(t, func(r *rig) {
		large, small := times(20, 2), times(1000, 500)
		r.serve(1)
		r.work(2)
		r.feed(small, r.inputs()).wait()
		s := r.servers[0]
		config, err := os.ReadFile(s.config)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(s.config, append(config, "max_payload: 8388608\n"...), 0o600); err != nil {
			r.t.Fatal(err)
		}
		s.signal(syscall.SIGHUP)
		var nc *nats.Conn
		r.until("the server takes 8 MiB", func() bool {
			nc = r.connect()
			return nc.MaxPayload() == 8<<20
		})
		js := r.JetStream(nc)
		for i := range large {
			_, err := js.Publish(r.Ctx(), fmt.Sprintf("ingest.web.%d", i%7), []byte(strings.Repeat(string(rune('a'+i)), 3<<20)))
			if err != nil {
				r.t.Fatal(err)
			}
			all := r.inputs()
			r.feed(small, func(n int) *nats.Msg { return all((i+1)*small + n) }).wait()
		}
		if a := r.close("max_payload raised while workers run", 1); a.payloads != large+(large+1)*small || a.dead > 0 {
			r.t.Errorf("%d inputs are stored, want %d; %d dead letters", a.payloads, large+(large+1)*small, a.dead)
		}
	})
}

// TestForgedMembers claims every partition on the subject on which workers find each other. It repeats the claim once a
// second under a new name.
func TestForgedMembers(t *testing.T) {
	need(t)
	t.Parallel()
	r := newRig(t, "exclusive")
	const partitions = 4
	r.set(fmt.Sprintf("MILLRACE_PARTITIONS=%d", partitions))
	r.serve(1)
	nc := r.connect()
	stop, ended := make(chan struct{}), make(chan struct{})
	ghosts := 0
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Second); ; {
			ghosts++
			_ = nc.Publish("millrace.members."+inputStream+".millrace", fmt.Appendf(nil, `{"id":"ghost-%d","owns":[0,1,2,3]}`, ghosts)) // a lost claim doesn't matter
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	r.work(2)
	chunks, of := times(40, 3), 1000
	for i := range chunks {
		all := r.inputs()
		r.feed(of, func(n int) *nats.Msg { return all(i*of + n) }).wait()
		r.until("every input is settled", r.isFinished)
	}
	close(stop)
	<-ended
	r.close("members that are none, one a second", ghosts)
}
