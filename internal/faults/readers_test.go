package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// words are headers of inputs that look like headers of the server's own messages. They have status fields in various
// spellings, or a status in the header's first line.
var words = []string{
	"NATS/1.0\r\nStatus: 409\r\nDescription: Consumer Deleted", "NATS/1.0\r\nstatus: 409\r\ndescription: Consumer Deleted",
	"NATS/1.0\r\nStatus:409\r\nSTATUS: 100", "NATS/1.0\r\nStatus: 100\r\nDescription: Idle Heartbeat\r\nNats-Last-Consumer: 1",
	"NATS/1.0\r\nStatus: 408\r\nNats-Pending-Messages: 1000000", "NATS/1.0\r\nStatus: 404\r\nStatus : 409\r\n Status: 409",
	"NATS/1.0\r\nStatus: 503", "NATS/1.0\r\nStatus: 423\r\nDescription: Nats-Wrong-Pin-Id", "NATS/1.0\r\nX: y\rStatus: 409",
	"NATS/1.0 409 Consumer Deleted", "NATS/1.0 409 Server Shutdown", "NATS/1.0 404 No Messages", "NATS/1.0 100 Idle Heartbeat",
}

// TestReadersUnderStatusHeaders reads results and dead letters with nats.go while workers take inputs without a payload
// and with headers like the server's. The result of every second input is too large, so that input becomes a dead
// letter.
func TestReadersUnderStatusHeaders(t *testing.T) {
	eachMode(t, func(r *rig) {
		const ordinary = 500
		rounds := times(40, 4)
		r.serve(1)
		r.Create(jetstream.StreamConfig{Name: resultStream, Subjects: []string{"results.>"}, MaxMsgSize: 2000})
		r.work(2)
		readers := []*reader{r.consume(resultStream), r.consume(deadStream)}
		var inputs []rawInput
		for range rounds {
			for i, word := range words {
				subject, header := fmt.Sprintf("ingest.%d", i), word+"\r\n\r\n"
				heavy := strings.Replace(header, "\r\n", "\r\nHeavy: "+strings.Repeat("h", 2000)+"\r\n", 1)
				inputs = append(inputs, rawInput{subject: subject, header: header}, rawInput{subject: subject, header: heavy})
			}
		}
		f := r.feed(ordinary, r.inputsOf(func(*rand.Rand) int { return 100 }))
		if refused := r.publishRaw(inputs); len(refused) > 0 {
			r.t.Fatalf("the server refuses inputs: %v", refused)
		}
		f.wait()
		a := r.close("readers of results and dead letters under status headers", len(inputs))
		if a.payloads != ordinary+len(inputs) || a.dead != len(inputs)/2 {
			r.t.Errorf("%d inputs are stored and %d dead letters, want %d and %d", a.payloads, a.dead, ordinary+len(inputs), len(inputs)/2)
		}
		for _, reader := range readers {
			state := r.Stream(reader.stream).CachedInfo().State
			r.until("the reader of "+reader.stream+" has read all", func() bool { return reader.came.Load() >= int64(state.Msgs) })
			if err := reader.failed.Load(); err != nil {
				r.t.Errorf("the reader of %s was told: %v", reader.stream, *err)
			}
			if state.Msgs == 0 {
				r.t.Errorf("%s holds nothing, so the test shows nothing", reader.stream)
			}
		}
	})
}

type reader struct {
	stream string
	came   atomic.Int64
	failed atomic.Pointer[error] // the first error that the reader received
}

func (r *rig) consume(stream string) *reader {
	r.t.Helper()
	ctx := r.Ctx()
	c, err := r.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		r.t.Fatal(err)
	}
	reader := &reader{stream: stream}
	consuming, err := c.Consume(func(jetstream.Msg) { reader.came.Add(1) },
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { reader.failed.CompareAndSwap(nil, &err) }))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(consuming.Stop)
	return reader
}
