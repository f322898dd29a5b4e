package resend

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
)

// durable is the name of the consumer that tracks the sent dead letters.
const durable = "worker-retry"

// rig is a server with an input stream IN (in.>) and a stream DEAD for dead letters (dead.>).
type rig struct {
	*natstest.Rig
	mu      sync.Mutex
	entries []Entry
	notes   []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Rig: natstest.New(t)}
	r.Create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}})
	r.Create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}})
	return r
}

// remember creates the durable consumer with a short AckWait. Dead letters of a dead run become available after that
// time.
func (r *rig) remember(maximum int) {
	r.Helper()
	_, err := r.JS.CreateConsumer(r.Ctx(), "DEAD", jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxAckPending: maximum, HeadersOnly: true,
	})
	if err != nil {
		r.Fatal(err)
	}
}

// letter returns a dead letter of the input with the given sequence, on in.web or in.log.
func letter(sequence int, reason string, body string, headers ...string) *nats.Msg {
	m := &nats.Msg{Subject: "dead.web", Data: []byte(body), Header: nats.Header{
		client.HeaderStream: {"IN"}, client.HeaderSequence: {strconv.Itoa(sequence)}, client.HeaderSubject: {"in.web"}, client.HeaderReason: {reason},
		client.HeaderError: {"an error"}, client.HeaderDeliveries: {"1"}, jetstream.MsgIDHeader: {fmt.Sprint("IN:", sequence, ":1:", reason)},
	}}
	if sequence%3 == 0 {
		m.Subject, m.Header[client.HeaderSubject] = "dead.log", []string{"in.log"}
	}
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = append(m.Header[headers[i]], headers[i+1])
	}
	return m
}

func (r *rig) publish(messages ...*nats.Msg) (sequence uint64) {
	r.Helper()
	for _, m := range messages {
		ack, err := r.JS.PublishMsg(r.Ctx(), m)
		if err != nil {
			r.Fatal(err)
		}
		sequence = ack.Sequence
	}
	return sequence
}

// letters stores n dead letters, alternating between two reasons and two subjects.
func (r *rig) letters(n int) {
	r.Helper()
	r.Publish(0, n, func(i int) *nats.Msg {
		return letter(i+1, []string{"too_large", "operator_error"}[i%2], fmt.Sprint("payload ", i+1))
	})
}

// resender returns a resender with a separate connection.
func (r *rig) resender(s Selection) *Resender {
	r.Helper()
	return &Resender{
		Conn: r.Connect(r.URL, nats.ReconnectBufSize(-1)), Name: durable, Select: s,
		Topology: topology.Topology{Stream: "IN", Subjects: []string{"in.>"}, DeadLetterPrefix: "dead"},
		Each: func(e Entry) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.entries = append(r.entries, e)
		},
		Note: func(text string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notes = append(r.notes, text)
		},
	}
}

// run runs a resender that must not fail.
func (r *rig) run(s *Resender) *Report {
	r.Helper()
	report, err := s.Run(r.Ctx())
	if err != nil {
		r.Fatal(err)
	}
	return report
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// wantOnce checks that the input stream has each of n payloads exactly once.
func (r *rig) wantOnce(n int) {
	r.Helper()
	found := map[string]int{}
	for _, m := range r.Stored("IN") {
		found[string(m.Data)]++
	}
	for i := range n {
		if payload := fmt.Sprint("payload ", i+1); found[payload] != 1 {
			r.Errorf("%s was sent %d times", payload, found[payload])
		}
	}
	if len(found) != n {
		r.Errorf("%d payloads were sent, want %d", len(found), n)
	}
}
