package results

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
)

// headed is a message with headers that no server sent.
type headed struct {
	inflight.Message
	header nats.Header
}

func (h headed) Headers() nats.Header { return h.header }

// BenchmarkResultHeader makes the headers of results, from inputs without headers and with a few. A map of up to
// eight headers uses the least memory.
func BenchmarkResultHeader(b *testing.B) {
	for name, header := range map[string]nats.Header{
		"none": nil, "two": {"Trace": {"1"}, "Language": {"en"}}, "three": {"Trace": {"1"}, "Language": {"en"}, "traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
	} {
		b.Run(name, func(b *testing.B) {
			d := inflight.Delivery{
				Msg: headed{header: header}, Stream: "INGEST", Sequence: 7, Subject: "ingest.web", Stored: time.Unix(1700000000, 123456789), NumDelivered: 1, First: true,
			}
			content := newContent(operator.JSON, compression.None)
			b.ReportAllocs()
			for b.Loop() {
				content.describe(ResultHeader(&d, "crc32c,minhash?k=24&hashes=128&seed=1"), false, 100)
			}
		})
	}
}
