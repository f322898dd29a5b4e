package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// copied is the name under which a snapshot of the input stream is restored.
const copied = "COPY"

// TestLoadRestoredCopy takes a snapshot of the input stream under full load and restores it under another name on
// another server. Workers then process new inputs in the copy. They must remove nothing from the copy, although it has
// the metadata of a trimmed stream. The workers of the original stream continue.
func TestLoadRestoredCopy(t *testing.T) {
	eachMode(t, func(r *rig) {
		r.byDefault()
		r.serve(1)
		r.work(2)
		defer r.lookAround()()
		l := r.beginStorm()
		snapshot := r.snapshot(inputStream)
		other := newRig(r.t, r.mode())
		other.byDefault()
		other.set("MILLRACE_STREAM=" + copied)
		other.serve(1)
		other.restore(copied, snapshot)
		before, _ := other.state(copied)
		other.work(2)
		again := other.storm(loaded / 4)
		again.wait()
		other.until("the copy is processed", other.hasProcessedCopy)
		other.until("a worker has seen that it may not trim", func() bool {
			return slices.ContainsFunc(other.workers, func(w *worker) bool { return other.mustMetric(w, `millrace_trim_held{reason="not_trimmed"}`) == 1 })
		})
		after, _ := other.state(copied)
		if after.FirstSeq != before.FirstSeq || after.Msgs != before.Msgs+uint64(again.stored()) {
			r.t.Errorf("the copy began with %d messages from %d on, and has %d from %d on after %d more", before.Msgs, before.FirstSeq, after.Msgs, after.FirstSeq, again.stored())
		}
		other.retire()
		l.wait()
		l.wantEachOnce()
	})
}

// hasProcessedCopy reports whether the consumers of the copy have no inputs left.
func (r *rig) hasProcessedCopy() bool {
	ctx, cancel := r.shortly()
	defer cancel()
	s, err := r.JS.Stream(ctx, copied)
	if err != nil {
		return false
	}
	left := -1
	consumers := s.ListConsumers(ctx)
	for info := range consumers.Info() {
		left = max(left, 0) + int(info.NumPending) + info.NumAckPending
	}
	return left == 0 && consumers.Err() == nil
}

// snapshot is a copy of a stream and its consumers, in the server's format.
type snapshot struct {
	Config jetstream.StreamConfig `json:"config"`
	State  json.RawMessage        `json:"state"`
	chunks [][]byte
}

// snapshot takes a snapshot of a stream. The server may fail while workers remove inputs from the stream, so snapshot
// retries.
func (r *rig) snapshot(stream string) (s snapshot) {
	r.t.Helper()
	r.until("the server has made a snapshot", func() bool {
		var err error
		if s, err = r.trySnapshot(stream); err != nil {
			r.t.Log(err)
		}
		return err == nil
	})
	return s
}

func (r *rig) trySnapshot(stream string) (s snapshot, err error) {
	inbox := nats.NewInbox()
	sub, err := r.NC.SubscribeSync(inbox)
	if err != nil {
		return s, err
	}
	defer func() { _ = sub.Unsubscribe() }() // no messages follow the snapshot
	r.mustAnswer("$JS.API.STREAM.SNAPSHOT."+stream, fmt.Appendf(nil, `{"deliver_subject": %q}`, inbox), &s)
	for {
		m, err := sub.NextMsg(natstest.Patience)
		switch {
		case err != nil:
			return s, err
		case len(m.Data) == 0: // the end
			if status := m.Header.Get("Status"); status != "204" {
				return s, fmt.Errorf("snapshot of %s ended with %v", stream, m.Header)
			}
			return s, nil
		}
		s.chunks = append(s.chunks, m.Data)
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				return s, err
			}
		}
	}
}

func (r *rig) restore(name string, s snapshot) {
	r.t.Helper()
	s.Config.Name = name
	request, err := json.Marshal(s)
	if err != nil {
		r.t.Fatal(err)
	}
	var answer struct {
		Subject string `json:"deliver_subject"`
	}
	r.mustAnswer("$JS.API.STREAM.RESTORE."+name, request, &answer)
	for _, chunk := range append(s.chunks, nil) {
		if m, err := r.NC.Request(answer.Subject, chunk, natstest.Patience); err != nil || errorIn(m.Data) != nil {
			r.t.Fatal(err, errorIn(m.Data))
		}
	}
	r.until("the stream exists", func() bool {
		state, ok := r.state(name)
		return ok && state.Msgs > 0
	})
	if _, marked := s.Config.Metadata["millrace-trim"]; !marked {
		r.t.Fatal("workers don't trim the copied stream")
	}
}

// mustAnswer sends a request to JetStream and decodes the answer.
func (r *rig) mustAnswer(subject string, request []byte, answer any) {
	r.t.Helper()
	m, err := r.NC.Request(subject, request, 10*time.Second)
	if err == nil {
		err = errors.Join(errorIn(m.Data), json.Unmarshal(m.Data, answer))
	}
	if err != nil {
		r.t.Fatalf("%s: %v", subject, err)
	}
}

func errorIn(answer []byte) error {
	var a struct {
		Error *jetstream.APIError `json:"error"`
	}
	if len(answer) > 0 && json.Unmarshal(answer, &a) == nil && a.Error != nil {
		return a.Error
	}
	return nil
}
