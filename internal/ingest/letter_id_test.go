package ingest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// A payload may be given up although its result is stored, when every acknowledgement of it was lost. A stream that has
// both must not take its dead letter for its result.
func TestADeadLetterIsNoDuplicateOfItsResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.createStream(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: time.Hour})
	r.provision()
	payload := someBytes(10)
	r.publish(1, payload)
	ends := r.prepare(hostDevice(t), streams.Config{}).worker.shared.ends
	input := r.input()
	result := &nats.Msg{Subject: "results.web.0", Header: results.ResultHeader(&input, results.OperatorNames(r.opts.Operators))}
	if _, err := r.js.PublishMsg(r.ctx(), result); err != nil {
		t.Fatal(err)
	}
	if !ends.DeadLetter(r.ctx(), &input, results.MaxDeliver, errors.New("delivered too often")) {
		t.Fatal("the dead letter was not stored")
	}
	if m := r.deadLetter("RESULTS", 1); !bytes.Equal(m.Data(), payload(0)) {
		t.Error("the dead letter is not the payload")
	}
}
