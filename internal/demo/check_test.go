package demo

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
	"millrace/internal/memory"
	"millrace/internal/operator"
)

// stand is a server with a result stream, a demo, and functions that replace the worker.
type stand struct {
	*natstest.Rig
	demo *Demo
}

func newStand(t *testing.T, payloads int) *stand {
	t.Helper()
	return newFramedStand(t, payloads, Frames{}, operator.JSON)
}

func newFramedStand(t *testing.T, payloads int, frames Frames, format operator.Format) *stand {
	t.Helper()
	r := natstest.New(t)
	for name, subjects := range map[string][]string{"IN": {"in.>"}, "RESULTS": {"results.>"}, "DEAD": {"dead.>"}} {
		r.Create(jetstream.StreamConfig{Name: name, Subjects: subjects})
	}
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{
		URL: r.URL, Payloads: payloads, Seed: 3, InputPrefixes: []string{"in"}, ResultStream: "RESULTS", ResultPrefix: "results",
		DeadLetterPrefix: "dead", Messages: memory.Messages{Operators: ops, Format: format}, Frames: frames, Out: io.Discard, Width: 80,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return &stand{r, d}
}

// body returns the correct result of a document.
func (s *stand) body(i int) []byte {
	doc := s.demo.producer.docs.Append(nil, i)
	op := s.demo.o.Operators[0]
	return operator.JSON.Append(nil, s.demo.o.Operators, len(doc), [][]byte{op.AppendReference(nil, doc)})
}

func (s *stand) publish(subject string, i int, body []byte, header nats.Header) {
	s.Helper()
	if header == nil {
		header = nats.Header{}
	}
	header.Set(HeaderDocument, strconv.Itoa(i))
	s.Publish(0, 1, func(int) *nats.Msg { return &nats.Msg{Subject: subject, Data: body, Header: header} })
}

func (s *stand) run() error {
	return s.demo.Run(s.Ctx())
}

func TestRightResultsAreVerified(t *testing.T) {
	s := newStand(t, 20)
	for i := range 20 {
		s.publish("results.docs.en", i, s.body(i), nil)
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	if s.demo.Verified() != 20 {
		t.Errorf("%d verified, want 20", s.demo.Verified())
	}
	if err := s.demo.Surplus(context.Background()); err != nil {
		t.Error(err)
	}
	if n := s.Stream("IN").CachedInfo().State.Msgs; n != 20 {
		t.Errorf("%d documents were produced, want 20", n)
	}
}

func TestWhatIsWrongIsFound(t *testing.T) {
	for _, c := range []struct {
		name, want string
		last       func(s *stand) // replaces the worker for the last of 5 documents
	}{
		{"wrong result", "document 4", func(s *stand) { s.publish("results.docs.en", 4, s.body(3), nil) }},
		{"two results", "document 2 has two results", func(s *stand) { s.publish("results.docs.en", 2, s.body(2), nil) }},
		{"dead letter", "document 4 is a dead letter: too_large", func(s *stand) {
			s.publish("dead.docs.en", 4, nil, nats.Header{results.HeaderReason: {"too_large"}, results.HeaderError: {"why"}})
		}},
		{"nobody's", "belongs to no document", func(s *stand) { s.publish("results.docs.en", 99, s.body(4), nil) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, 5)
			for i := range 4 {
				s.publish("results.docs.en", i, s.body(i), nil)
			}
			c.last(s)
			err := s.run()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run = %v, want it to say %q", err, c.want)
			}
			if s.demo.Verified() != 4 {
				t.Errorf("%d verified, want 4", s.demo.Verified())
			}
		})
	}
}

func TestMissingResultsEndTheDemo(t *testing.T) {
	s := newStand(t, 5)
	s.demo.checker.stall = 200 * time.Millisecond
	s.publish("results.docs.en", 0, s.body(0), nil)
	err := s.run()
	if err == nil || !strings.Contains(err.Error(), "1 of 5 results arrived") {
		t.Errorf("Run = %v, want it to say how many results arrived", err)
	}
}

func TestSurplusIsFound(t *testing.T) {
	s := newStand(t, 2)
	for _, i := range []int{0, 1, 1} {
		s.publish("results.docs.en", i, s.body(i), nil)
	}
	if err := s.demo.Surplus(context.Background()); err == nil {
		t.Error("the surplus result was not found")
	}
}

func TestInterruptedDemoEnds(t *testing.T) {
	s := newStand(t, 5)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.demo.Run(ctx) }()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("an interrupted demo returned no error")
		}
	case <-time.After(natstest.Patience):
		t.Error("it did not end")
	}
}

// TestInterruptedDemoEndsWithAFullQueue fills the queue. On a machine with two cores, nothing reads it until all results are stored.
func TestInterruptedDemoEndsWithAFullQueue(t *testing.T) {
	s := newStand(t, 2*workQueue)
	body := s.body(0)
	s.Publish(0, workQueue+1, func(i int) *nats.Msg {
		return &nats.Msg{Subject: "results.docs.en", Data: body, Header: nats.Header{HeaderDocument: {strconv.Itoa(i)}}}
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	work := make(chan result, workQueue)
	came, err := s.demo.checker.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.demo.checker.read(ctx, came, work) }()
	s.Until("the queue is full", func() bool { return len(work) == workQueue })
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("read: %v", err)
		}
	case <-time.After(natstest.Patience):
		t.Error("it did not end")
	}
}
