package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
)

// BenchmarkAudit audits inputs on a local server. Every input has a result. The metric inputs/s is the rate.
func BenchmarkAudit(b *testing.B) {
	const n = 500_000
	r := natstest.New(b)
	t := topology.Topology{
		Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace", ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter",
	}
	r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	subject := func(i int) string { return fmt.Sprint("web.", i%64) }
	r.Publish(0, n, func(i int) *nats.Msg { return &nats.Msg{Subject: "ingest." + subject(i)} })
	stored := time.Now().UnixNano()
	r.Publish(0, n, func(i int) *nats.Msg {
		return &nats.Msg{Subject: "results." + subject(i), Data: make([]byte, 100), Header: nats.Header{
			client.HeaderStream: {"INGEST"}, client.HeaderSequence: {fmt.Sprint(i + 1)}, client.HeaderSubject: {"ingest." + subject(i)},
			client.HeaderOperators: {"crc32c,minhash?k=24&hashes=128&seed=42"}, "Content-Type": {client.TypeJSON},
			jetstream.MsgIDHeader: {fmt.Sprintf("INGEST:%d:%d", i+1, stored)},
		}}
	})
	a := &Auditor{JS: r.JS, Topology: t}
	for b.Loop() {
		report, err := a.Run(b.Context())
		if err != nil || report.Results != n || report.Wrong() > 0 {
			b.Fatalf("%+v: %v", report, err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "inputs/s")
}
