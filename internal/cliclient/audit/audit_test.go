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

func TestInputsWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(20)
	r.want("pending 20")
	r.results(1, 8)
	r.acknowledge("c", 0, 10) // 9 and 10 are acknowledged without an outcome
	r.want("results 8, pending 10, missing 9-10")
	r.purge("IN", 11) // the trim that removes them
	r.want("results 8, pending 10, missing 9-10")
	r.store("dead.0", 9, client.HeaderReason+"=too_large")
	r.want("results 8, dead 1, pending 10, missing 10-10")
	r.remove("IN", 15)
	r.want("results 8, dead 1, pending 9, missing 10-10, missing 15-15")
	r.auditor.From, r.auditor.To = 11, 14
	r.want("pending 4")
}

// TestTheConsumerWaitsForFewer uses shared delivery, whose consumer reports only the number of its delivered and
// unacknowledged inputs.
func TestTheConsumerWaitsForFewer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(20)
	r.acknowledge("c", 4, 0)
	r.want("pending 20")
	r.acknowledge("c", 0, 3) // acknowledges 5 to 7; 1 to 4 remain unacknowledged
	report := r.want("pending 17, missing 1-7")
	if report.Counts[Missing] != 3 {
		t.Errorf("%d are missing, want 3", report.Counts[Missing])
	}
	r.results(5, 7)
	r.want("results 3, pending 17")
}

// TestPartitions shows that the audit computes the same partition as the server. With exclusive delivery, each
// partition has a consumer.
func TestPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *jetstream.StreamConfig) {
		if c.Name == "IN" {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: "{{partition(3)}}.>"}
		}
	})
	r.auditor.Topology.Exclusive, r.auditor.Topology.Partitions = true, 3
	for p := range 3 {
		r.consumer(fmt.Sprint("c-", p), fmt.Sprint(p, ".>"), jetstream.AckAllPolicy)
	}
	r.inputs(30)
	for _, m := range r.Stored("IN") {
		number, subject, _ := strings.Cut(m.Subject, ".")
		if want := partitionOf(subject, 3); number != fmt.Sprint(want) {
			t.Errorf("%s is in partition %s, but the audit computes partition %d", subject, number, want)
		}
	}
	r.want("pending 30")
	r.acknowledge(fmt.Sprint("c-", partitionOf("in.0", 3)), 0, 1)
	r.want("pending 29, missing 1-1")
	r.results(1, 1)
	r.want("results 1, pending 29")
	for _, input := range []uint64{7, 2} { // without markers, the audit checks no order
		r.store("out.1", input)
	}
	r.want("results 3, pending 27")
	marker := fmt.Sprint("commits.OUT.IN.c.", partitionOf("in.2", 3))
	for _, m := range []*nats.Msg{
		{Subject: marker + ".state", Header: nats.Header{"Millrace-Behind": {"0"}}, Data: []byte("entry of the log of a state")},
		{Subject: marker},
		{Subject: marker + ".state", Header: nats.Header{"Millrace-Behind": {"5"}}, Data: []byte("another entry")},
	} {
		if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
			t.Fatal(err)
		}
	}
	r.store("out.2", 8)
	r.store("out.2", 3)
	r.store("out.2", 13)
	r.want("results 6, pending 24, disorder 3-3")
}

func TestParts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(6)
	part := func(input uint64, part, cut string) uint64 {
		return r.store("out.0", input, client.HeaderPart+"="+part, client.HeaderCut+"="+cut)
	}
	part(1, "2/3", "a")
	part(1, "1/3", "a")
	part(1, "1/2", "b") // from an abandoned cut
	part(1, "3/3", "a")
	part(1, "2/4", "c") // arrives late
	r.want("results 1, pending 5")
	part(2, "1/4", "a")
	part(2, "3/4", "a")
	part(2, "4/4", "a")
	r.want("results 2, pending 4, incomplete 2-2")
}

// TestMessagesOfFrames stores parts of several cuts and dead letters of records.
func TestMessagesOfFrames(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(6)
	part := func(input uint64, part, cut string) {
		r.store("out.0", input, client.HeaderPart+"="+part, client.HeaderCut+"="+cut)
	}
	record := func(input, record uint64) {
		r.store("dead.0", input, client.HeaderReason+"=operator_error", fmt.Sprint(client.HeaderRecord, "=", record))
	}
	part(3, "1/2", "a")
	part(3, "1/2", "a")
	part(3, "2/2", "a")
	record(4, 0)
	record(4, 1)
	r.store("out.0", 4)
	record(5, 0)
	record(5, 0)
	r.want("results 2, pending 4, double 3-3, double 5-5")
}

// TestRecordsThatAFilterLeftOut shows that each result counts once, even if it has several parts, is stored twice, or has no records.
func TestRecordsThatAFilterLeftOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(4)
	filtered := func(n int) string { return fmt.Sprint(client.HeaderFiltered, "=", n) }
	part := func(at string) string { return client.HeaderPart + "=" + at }
	r.store("out.0", 1, filtered(20), part("1/2"), client.HeaderCut+"=a")
	r.store("out.0", 1, filtered(20), part("2/2"), client.HeaderCut+"=a")
	r.store("out.1", 2, filtered(3), client.HeaderRecords+"=0")
	r.store("out.2", 3, filtered(500))
	r.store("out.3", 4)
	r.acknowledge("c", 0, 4)
	report := r.want("results 4, filtered 523")
	var text strings.Builder
	if err := report.Print(&text); err != nil || !strings.Contains(text.String(), " 523 records were left out of results by a filter\n") {
		t.Errorf("%v:\n%s", err, &text)
	}
	r.store("out.2", 3, filtered(500))
	r.want("results 3, doubled 1, filtered 523, double 3-3")
}

// TestADeadLetterInTwoMessages shows that the payload's message, which has no headers, isn't an outcome.
func TestADeadLetterInTwoMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(1)
	ack, err := r.JS.Publish(r.Ctx(), "dead.0", []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	r.store("dead.0", 1, client.HeaderReason+"=too_large", fmt.Sprint(client.HeaderPayloadSequence, "=", ack.Sequence))
	r.want("dead 1")
	r.store("dead.0", 1) // keeps the payload from being the stream's first message
	r.remove("DEAD", ack.Sequence)
	r.want("doubled 1, double 1-1, incomplete 1-1")
}

// TestWhatCantBeKnown has inputs whose outcomes the server may have removed, and sequences that may never have been inputs.
func TestWhatCantBeKnown(t *testing.T) {
	t.Parallel()
	t.Run("results were purged", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.inputs(200)
		r.results(1, 150)
		r.acknowledge("c", 0, 150)
		r.purge("IN", 151)
		r.purge("OUT", 121)
		r.want("results 30, pending 50, unknown 1-120")
		r.inputs(5)
	})
	t.Run("a few were deleted", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.inputs(10)
		r.results(1, 10)
		r.acknowledge("c", 0, 10)
		r.purge("IN", 11)
		r.remove("OUT", 1)
		r.want("results 9, missing 1-1")
	})
	t.Run("another subject", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, func(c *jetstream.StreamConfig) {
			if c.Name == "IN" {
				c.Subjects = []string{"in.>", "other"}
			}
		})
		r.inputs(3)
		for range 2 {
			if _, err := r.JS.Publish(r.Ctx(), "other", nil); err != nil {
				t.Fatal(err)
			}
		}
		r.results(1, 2)
		r.want("results 2, pending 1, unread 2")
		r.purge("IN", 5)
		r.want("results 2, unread 1, unknown 3-4")
	})
	t.Run("the deployment began later", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.inputs(10)
		r.purge("IN", 5)
		if err := r.JS.DeleteConsumer(r.Ctx(), "IN", "c"); err != nil {
			t.Fatal(err)
		}
		r.results(6, 8)
		if report := r.want("results 3, pending 3, unknown 1-4"); len(report.Notes) != 1 {
			t.Errorf("%q, want that the consumer doesn't exist", report.Notes)
		}
	})
}

// TestSequencesThatAreUsedAgain has outcomes from an earlier or restored stream with other inputs and the same name.
func TestSequencesThatAreUsedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(3)
	id := func(at time.Time) string { return fmt.Sprintf("%s=IN:1:%d", client.HeaderID, at.UnixNano()) }
	r.store("out.0", 1, id(time.Now().Add(-time.Hour)))
	r.want("pending 3")
	r.results(1, 1)
	r.store("out.0", 1, id(r.stored[1].Add(time.Second)))
	if report := r.want("results 1, pending 2"); len(report.Notes) != 1 {
		t.Errorf("%q, want that a sequence was used again", report.Notes)
	}
	r.store("out.0", 1, client.HeaderID+"=")
	r.want("doubled 1, pending 2, double 1-1")
}

// TestInputsThatAreSettledMeanwhile settles and removes inputs after the audit has read the streams.
func TestInputsThatAreSettledMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(10)
	r.results(1, 5)
	r.remove("IN", 2) // the stream has a gap now, so the audit reads messages
	ctx, report := r.Ctx(), &Report{limit: 10}
	in := &inputs{js: r.JS, topology: r.auditor.Topology}
	if err := in.read(ctx); err != nil {
		t.Fatal(err)
	}
	out := newOutcomes(in, &span{from: 1, to: 10}, report)
	if err := out.open(ctx, r.JS, r.auditor.Topology); err != nil {
		t.Fatal(err)
	}
	if err := out.advance(ctx); err != nil {
		t.Fatal(err)
	}
	if err := in.readConsumers(ctx); err != nil {
		t.Fatal(err)
	}
	r.results(6, 7)
	r.remove("IN", 6)
	r.remove("IN", 7)
	r.remove("IN", 8) // removed without an outcome
	if err := (&judge{inputs: in, outcomes: out, report: report}).run(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := brief(report), "results 7, pending 2, missing 8-8"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestStreamsThatLoseWhatIsRead shows that the audit refuses a work queue as a result stream, because reading would remove its messages.
func TestStreamsThatLoseWhatIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *jetstream.StreamConfig) {
		if c.Name == "OUT" {
			c.Retention = jetstream.WorkQueuePolicy
		}
	})
	if _, err := r.auditor.Run(r.Ctx()); err == nil || !strings.Contains(err.Error(), "nothing can be proved") {
		t.Errorf("%v", err)
	}
}

// TestNoConsumerOnTheInputStream shows that the audit creates no consumer on the input stream, because the server may
// remove inputs when it deletes one.
func TestNoConsumerOnTheInputStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(10)
	r.remove("IN", 3)
	asked, err := r.NC.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.CREATED.>")
	if err != nil {
		t.Fatal(err)
	}
	r.want("pending 9, missing 3-3")
	r.consumer("last", "", jetstream.AckNonePolicy)
	for {
		m, err := asked.NextMsg(natstest.Patience)
		if err != nil || strings.HasSuffix(m.Subject, ".IN.last") {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if strings.Contains(m.Subject, ".IN.") {
			t.Errorf("a consumer was created: %s", m.Subject)
		}
	}
}

// TestTheLimit shows that the report counts all findings and lists at most Limit findings of each kind.
func TestTheLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.auditor.Limit = 2
	r.inputs(10)
	for input := uint64(1); input < 10; input += 2 {
		r.results(input, input)
	}
	r.acknowledge("c", 0, 10)
	if report := r.want("results 5, missing 2-2, missing 4-4"); report.Counts[Missing] != 5 {
		t.Errorf("%d are counted, want 5", report.Counts[Missing])
	}
	var text strings.Builder
	if err := (&Report{Stream: "IN", First: 1, Last: 2, Findings: []Finding{{Missing, 1, 2, "why"}}, Counts: map[Kind]uint64{Missing: 2}}).Print(&text); err != nil ||
		!strings.Contains(text.String(), "missing: inputs 1 to 2: why\nmissing: 2 in all\n") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestWhoReadsASubject shows that with exclusive delivery, the partition in the subject's first token selects the consumer.
func TestWhoReadsASubject(t *testing.T) {
	t.Parallel()
	in := &inputs{topology: topology.Topology{Subjects: []string{"in.>"}, Exclusive: true, Partitions: 2}}
	for subject, want := range map[string]int{"0.in.a": 0, "1.in.a": 1, "2.in.a": -1, "in.a": -1, "1.other": -1, "-1.in.a": -1} {
		if got := in.consumer(subject); got != want {
			t.Errorf("%s is read by %d, want %d", subject, got, want)
		}
	}
}
