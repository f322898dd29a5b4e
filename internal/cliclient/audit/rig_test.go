package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
)

// rig is a server with an input stream, a result stream and a dead-letter stream. No worker runs. The tests store the
// messages that a worker would store.
type rig struct {
	*natstest.Rig
	auditor Auditor
	stored  map[uint64]time.Time // storage time of each input
}

// newRig returns a rig with a consumer of shared delivery.
func newRig(t *testing.T, changes ...func(c *jetstream.StreamConfig)) *rig {
	t.Helper()
	r := &rig{Rig: natstest.New(t), stored: map[uint64]time.Time{}}
	r.auditor = Auditor{JS: r.JS, Limit: 10, Topology: topology.Topology{
		Stream: "IN", Subjects: []string{"in.>"}, Consumer: "c", ResultStream: "OUT", ResultPrefix: "out", DeadLetterPrefix: "dead", CommitPrefix: "commits",
	}}
	for _, c := range []jetstream.StreamConfig{
		{Name: "IN", Subjects: []string{"in.>"}}, {Name: "OUT", Subjects: []string{"out.>", "commits.OUT.>"}}, {Name: "DEAD", Subjects: []string{"dead.>"}},
	} {
		for _, change := range changes {
			change(&c)
		}
		r.Create(c)
	}
	r.consumer("c", ">", jetstream.AckExplicitPolicy)
	return r
}

func (r *rig) consumer(name, filter string, acks jetstream.AckPolicy) {
	r.Helper()
	if _, err := r.JS.CreateConsumer(r.Ctx(), "IN", jetstream.ConsumerConfig{Durable: name, FilterSubject: filter, AckPolicy: acks, AckWait: time.Hour}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) inputs(n int) {
	r.Helper()
	for i := range n {
		ack, err := r.JS.Publish(r.Ctx(), fmt.Sprint("in.", i%5), nil)
		if err != nil {
			r.Fatal(err)
		}
		m, err := r.Stream("IN").GetMsg(r.Ctx(), ack.Sequence)
		if err != nil {
			r.Fatal(err)
		}
		r.stored[ack.Sequence] = m.Time
	}
}

// store stores a message with the headers of an input's outcome, and more headers such as "Name=value". It returns the
// sequence.
func (r *rig) store(subject string, input uint64, more ...string) uint64 {
	r.Helper()
	h := nats.Header{
		client.HeaderStream: {"IN"}, client.HeaderSequence: {fmt.Sprint(input)}, client.HeaderSubject: {strings.Replace(subject, "out", "in", 1)},
		client.HeaderID: {fmt.Sprintf("IN:%d:%d", input, r.stored[input].UnixNano())},
	}
	for _, header := range more {
		name, value, _ := strings.Cut(header, "=")
		h[name] = []string{value}
	}
	ack, err := r.JS.PublishMsg(r.Ctx(), &nats.Msg{Subject: subject, Header: h})
	if err != nil {
		r.Fatal(err)
	}
	return ack.Sequence
}

// results stores one result for each input from first to last.
func (r *rig) results(first, last uint64) {
	r.Helper()
	for input := first; input <= last; input++ {
		r.store(fmt.Sprint("out.", (input-1)%5), input)
	}
}

// acknowledge skips the given number of inputs of a consumer and acknowledges the next n.
func (r *rig) acknowledge(consumer string, skip, n int) {
	r.Helper()
	batch, err := r.Consumer("IN", consumer).Fetch(skip + n)
	if err != nil {
		r.Fatal(err)
	}
	for m := range batch.Messages() {
		if skip--; skip >= 0 {
			continue
		}
		if err := m.DoubleAck(r.Ctx()); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *rig) purge(stream string, up uint64) {
	r.Helper()
	if err := r.Stream(stream).Purge(r.Ctx(), jetstream.WithPurgeSequence(up)); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) remove(stream string, sequence uint64) {
	r.Helper()
	if err := r.Stream(stream).DeleteMsg(r.Ctx(), sequence); err != nil {
		r.Fatal(err)
	}
}

// want runs an audit and compares its counts and findings with a text such as "results 3, missing 4-7".
func (r *rig) want(text string) *Report {
	r.Helper()
	report, err := r.auditor.Run(r.Ctx())
	if err != nil {
		r.Fatal(err)
	}
	if got := brief(report); got != text {
		r.Errorf("got  %s\nwant %s\n%+v", got, text, report)
	}
	return report
}

// brief returns the nonzero counts and the findings.
func brief(report *Report) string {
	var parts []string
	for _, c := range []struct {
		name string
		n    uint64
	}{
		{"results", report.Results}, {"dead", report.DeadLetters}, {"doubled", report.Doubled}, {"pending", report.Pending}, {"unread", report.Unread},
		{"filtered", report.Filtered},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprint(c.name, " ", c.n))
		}
	}
	for _, u := range report.Unknown {
		parts = append(parts, fmt.Sprintf("unknown %d-%d", u.First, u.Last))
	}
	for _, f := range report.Findings {
		parts = append(parts, fmt.Sprintf("%s %d-%d", f.Kind, f.First, f.Last))
	}
	return strings.Join(parts, ", ")
}
