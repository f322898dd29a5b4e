package shared

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// TestADeadLetterIsNoDuplicateOfItsResult publishes a dead letter for a payload with a stored result, as if every
// acknowledgement was lost. A stream for both must not drop the dead letter as a duplicate.
func TestADeadLetterIsNoDuplicateOfItsResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stream, err := r.JS.CreateStream(r.Ctx(), jetstream.StreamConfig{
		Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.provision()
	payload := someBytes(10)
	r.publish(0, 1, payload)
	ends := r.mode().ends
	input := r.input()
	result := &nats.Msg{Subject: "results.web.0", Header: results.ResultHeader(&input, results.OperatorNames(r.operators))}
	if _, err := r.JS.PublishMsg(r.Ctx(), result); err != nil {
		t.Fatal(err)
	}
	if !ends.DeadLetter(r.Ctx(), &input, results.MaxDeliver, errors.New("delivered too often")) {
		t.Fatal("the dead letter was not stored")
	}
	if info, err := stream.Info(r.Ctx()); err != nil || info.State.Msgs != 2 {
		t.Fatalf("the stream has %d messages (%v), want the result and the dead letter", info.State.Msgs, err)
	}
	m, err := stream.GetLastMsgForSubject(r.Ctx(), "deadletter.>")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(m.Subject, "deadletter.") || m.Header.Get(results.HeaderSequence) != "1" || !bytes.Equal(m.Data, payload(0)) {
		t.Errorf("the dead letter on %q of input %q is not the payload", m.Subject, m.Header.Get(results.HeaderSequence))
	}
}

// TestADeadLetterThatFindsNoPlaceIsGivenBack ends the drain while the maximum number of dead letters is being
// published. A waiting input is given back, and its memory is freed.
func TestADeadLetterThatFindsNoPlaceIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(0, 1, document)
	m := r.mode()
	d := r.input()
	if !m.o.Pool.Hold(t.Context(), &d) {
		t.Fatal("no memory")
	}
	for range deadLetterWindow {
		m.ends.deadLetters <- struct{}{}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	m.ends.GiveUp(over, d, results.MaxDeliver, errors.New("delivered too often"))
	if used := m.o.Pool.Memory().Used; used != 0 {
		t.Errorf("it still holds %d bytes", used)
	}
	if again := r.input(); again.Sequence != d.Sequence || again.NumDelivered != 2 {
		t.Errorf("input %d comes, delivery %d, want it again", again.Sequence, again.NumDelivered)
	}
}
