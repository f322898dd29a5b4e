package topology

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// partitionInspector checks the requirements of exclusive delivery: a stream that puts partitions before its subjects, and a
// consumer per partition.
type partitionInspector struct{ streamInspector }

func (i partitionInspector) inspect() {
	if s, err := i.js.Stream(i.ctx, i.l.Stream); err == nil { // the error is already reported
		c := s.CachedInfo().Config
		if found, advice := unfit(c, i.l, nil); found != "" {
			i.say(finding.Error, "stream "+c.Name, found, advice)
			return // consumers for partitions would be useless
		}
		i.removals(c)
	}
	worst := finding.OK
	var missing []int
	for p := range i.l.Partitions {
		level, there := i.consumer(p)
		if worst = max(worst, level); !there {
			missing = append(missing, p)
		}
	}
	for len(missing) > 0 {
		missing = i.missingFrom(missing)
		worst = finding.Error
	}
	if worst == finding.OK {
		i.say(finding.OK, fmt.Sprintf("consumers %s to %d", PartitionConsumer(i.l.Consumer, 0), i.l.Partitions-1),
			"one for each partition, pinned to one worker at a time", "")
	}
}

// removals warns about settings that make the server remove individual messages. The removal of an unacknowledged message
// acknowledges all earlier messages of its partition.
func (i partitionInspector) removals(c jetstream.StreamConfig) {
	var found []string
	if c.AllowMsgTTL {
		found = append(found, "allow_msg_ttl")
	}
	if c.AllowRollup {
		found = append(found, "allow_rollup_hdrs")
	}
	if c.MaxMsgsPerSubject > 0 && (c.Discard == jetstream.DiscardOld || !c.DiscardNewPerSubject) {
		found = append(found, fmt.Sprintf("max_msgs_per_subject %d", c.MaxMsgsPerSubject))
	}
	if len(found) > 0 {
		i.say(finding.Warning, "stream "+c.Name, "can remove single messages: "+strings.Join(found, ", "), "with exclusive delivery the "+
			"server then counts earlier messages of the partition as acknowledged, and they are lost if their worker dies at that time; use a "+
			"stream without them, or MILLRACE_DELIVERY=shared")
	}
}

// missingFrom reports the consumers at the start of the list whose numbers are consecutive, and returns the remaining list.
func (i partitionInspector) missingFrom(list []int) []int {
	n := 1
	for n < len(list) && list[n] == list[0]+n {
		n++
	}
	first, last := list[0], list[n-1]
	what := "consumer " + PartitionConsumer(i.l.Consumer, first)
	if n > 1 {
		what = fmt.Sprintf("consumers %s to %d", PartitionConsumer(i.l.Consumer, first), last)
	}
	i.reportMissing(what, "not there"+i.dropped(), addPartitionConsumers(i.l, first, last))
	return list[n:]
}

// consumer checks one partition's consumer, and reports only problems. there is false if the consumer doesn't exist.
func (i partitionInspector) consumer(p int) (worst finding.Level, there bool) {
	want := partitionConsumerConfig(i.l, p)
	what := "consumer " + want.Durable
	c, err := i.js.Consumer(i.ctx, i.l.Stream, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
		return finding.OK, false
	case err != nil:
		i.failed(what, err, "it must be a pull consumer, and the account must be allowed to read it")
		return finding.Error, true
	}
	i.reportPaused(what, c.CachedInfo())
	got := c.CachedInfo().Config
	say := func(l finding.Level, found, advice string) { worst = max(worst, l); i.say(l, what, found, advice) }
	if got.AckPolicy != jetstream.AckAllPolicy || got.PriorityPolicy != jetstream.PriorityPolicyPinned {
		say(finding.Error, fmt.Sprintf("ack policy %s", got.AckPolicy), i.keepInputs()+"delete it and set MILLRACE_PROVISION=true: it must acknowledge all "+
			"at once and be pinned to one client (priority policy pinned_client, group "+PriorityGroup+")")
	}
	if filters := append([]string(nil), got.FilterSubjects...); !sameSubjects(orOne(filters, got.FilterSubject), want.FilterSubjects) {
		say(finding.Error, fmt.Sprintf("filters %v, want %v", orOne(filters, got.FilterSubject), want.FilterSubjects), "make them agree")
	}
	if got.MaxDeliver > 0 {
		say(finding.Error, fmt.Sprintf("max deliver %d", got.MaxDeliver), "make it unlimited: what the server does not deliver any more "+
			"would be acknowledged with later ones")
	}
	if got.MaxAckPending > 0 && got.MaxAckPending*i.l.Partitions < i.use.InFlight {
		say(finding.Warning, fmt.Sprintf("max ack pending %d", got.MaxAckPending), fmt.Sprintf("the pipelines can hold %d payloads; raise it, or "+
			"lower MILLRACE_BATCH_PAYLOADS or MILLRACE_LANES", i.use.InFlight))
	}
	agreement(i.l, i.use, got, say)
	return worst, true
}
