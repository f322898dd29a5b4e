package ingest

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// partitions looks at what exclusive delivery needs: a stream that puts partitions before its subjects, and a consumer for
// each.
func (i *inspection) partitions(inFlight int) {
	if c, ok := i.stream(i.o.Stream, "the input"); ok {
		want := partitionTransform(i.o.Partitions)
		what := "stream " + c.Name
		if c.SubjectTransform == nil || *c.SubjectTransform != *want {
			found := "does not put a partition before its subjects"
			if c.SubjectTransform != nil {
				found = fmt.Sprintf("maps %q to %q", c.SubjectTransform.Source, c.SubjectTransform.Destination)
			}
			i.say(Error, what, found, fmt.Sprintf("give it the subject transform %q to %q, set MILLRACE_PARTITIONS to what it has, or "+
				"set MILLRACE_DELIVERY=shared. What it holds already keeps its subjects and is not seen: let it be worked off before",
				want.Source, want.Destination))
		}
	}
	worst := OK
	for p := range i.o.Partitions {
		worst = max(worst, i.partitionConsumer(p, inFlight))
	}
	if worst == OK {
		i.say(OK, fmt.Sprintf("consumers %s to %d", partitionConsumer(i.o.Consumer, 0), i.o.Partitions-1),
			"one for each partition, pinned to one worker at a time", "")
	}
}

// partitionConsumer looks at one of them, and says nothing where it is as it should be.
func (i *inspection) partitionConsumer(p, inFlight int) Level {
	want := partitionConsumerConfig(i.o, p)
	what := "consumer " + want.Durable
	c, err := i.js.Consumer(i.ctx, i.o.Stream, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return OK // said already
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		i.missing(what, "not there")
		return Error
	case err != nil:
		i.say(Error, what, err.Error(), "it must be a pull consumer, and the account must be allowed to read it")
		return Error
	}
	got := c.CachedInfo().Config
	worst := OK
	say := func(l Level, found, advice string) { worst = max(worst, l); i.say(l, what, found, advice) }
	if got.AckPolicy != jetstream.AckAllPolicy || got.PriorityPolicy != jetstream.PriorityPolicyPinned {
		say(Error, fmt.Sprintf("ack policy %s", got.AckPolicy), "delete it and set MILLRACE_PROVISION=true: it must acknowledge all "+
			"at once and be pinned to one client (priority policy pinned_client, group "+priorityGroup+")")
	}
	if filters := append([]string(nil), got.FilterSubjects...); !sameSubjects(orOne(filters, got.FilterSubject), want.FilterSubjects) {
		say(Error, fmt.Sprintf("filters %v, want %v", orOne(filters, got.FilterSubject), want.FilterSubjects), "make them agree")
	}
	if got.MaxDeliver > 0 {
		say(Error, fmt.Sprintf("max deliver %d", got.MaxDeliver), "make it unlimited: what the server does not deliver any more "+
			"would be acknowledged with what is behind it")
	}
	if got.MaxAckPending > 0 && got.MaxAckPending*i.o.Partitions < inFlight {
		say(Warning, fmt.Sprintf("max ack pending %d", got.MaxAckPending), fmt.Sprintf("the pipelines can hold %d payloads; raise it, or "+
			"lower MILLRACE_BATCH_PAYLOADS or MILLRACE_LANES", inFlight))
	}
	i.agreement(got, say)
	return worst
}

// orOne is list, or the one element where that is empty.
func orOne(list []string, one string) []string {
	if len(list) == 0 && one != "" {
		return []string{one}
	}
	return list
}
