package topology

// This file describes the consumers of the input stream: the settings of new consumers, the commands that create them, and tables of possible
// problems of existing consumers. With shared delivery all workers pull from one consumer. With exclusive delivery each partition has its own
// consumer, which the server pins to one worker at a time. The file ends with the removal of the inputs that consumers have processed.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/trim"
)

const (
	// PriorityGroup is the group in which workers pull from a partition's consumer.
	PriorityGroup = "millrace"

	// PinnedFor is the time for which the server keeps a partition for a worker that sends no requests. It bounds the time without
	// an owner after a worker has died. Workers send three requests in that time.
	PinnedFor = 3 * time.Second
)

// MarkDelivered is a key in the metadata of a partition's consumer. Its value is the highest stream sequence that the consumer is
// known to have delivered. After a crash of the server or a reset by an administrator, the consumer's own state may be older.
const MarkDelivered = "millrace-delivered"

// PartitionConsumer returns the name of a partition's consumer.
func PartitionConsumer(consumer string, p int) string { return consumer + "-" + strconv.Itoa(p) }

// Consumers returns the names of all consumers of the input stream that the worker needs.
func (l Topology) Consumers() (names []string) {
	for _, c := range l.newConsumers() {
		names = append(names, c.Durable)
	}
	return names
}

// ConsumerCount returns the number of these consumers.
func (l Topology) ConsumerCount() int {
	if l.Exclusive {
		return l.Partitions
	}
	return 1
}

// Filters returns the subject filters of the consumer. With partitions, the number of the partition precedes each.
func (l Topology) Filters() []string {
	if l.Whole {
		return []string{">"}
	}
	return l.Subjects
}

// trimmer returns a Trimmer of the input stream that doesn't run.
func (l Topology) trimmer(js jetstream.JetStream) *trim.Trimmer {
	return trim.New(trim.Options{JS: js, Stream: l.Stream, Policy: l.Trim, Consumers: l.Consumers()})
}

// newConsumers returns the configurations of all consumers that the worker needs.
func (l Topology) newConsumers() []jetstream.ConsumerConfig {
	if !l.Exclusive {
		return []jetstream.ConsumerConfig{l.newConsumer()}
	}
	all := make([]jetstream.ConsumerConfig, l.Partitions)
	for p := range all {
		all[p] = l.partitionConsumer(strconv.Itoa(p))
	}
	return all
}

// newConsumer returns the configuration of the consumer of shared delivery.
func (l Topology) newConsumer() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: l.Consumer, FilterSubjects: l.Filters(),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: l.AckWait, MaxAckPending: l.MaxAckPending,
		// The worker counts deliveries itself, because a server that stops delivering can't send a dead letter.
		MaxDeliver:  -1,
		Description: provisioned,
	}
}

// partitionConsumer returns the configuration of the consumer of a partition. The partition is a number or, in a command, a variable.
func (l Topology) partitionConsumer(partition string) jetstream.ConsumerConfig {
	c := l.newConsumer()
	c.Durable, c.FilterSubjects = l.Consumer+"-"+partition, partitionFilters(partition, l.Filters())
	c.AckPolicy, c.Metadata = jetstream.AckAllPolicy, map[string]string{MarkDelivered: "0"}
	c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{PriorityGroup}, PinnedFor
	return c
}

// consumerTable returns the settings of a consumer, in the order of the flags of `nats consumer add`. quote is the quotation mark of the
// shell around filters.
func consumerTable(c jetstream.ConsumerConfig, quote string) []setting {
	ack := map[jetstream.AckPolicy]string{jetstream.AckExplicitPolicy: "explicit", jetstream.AckAllPolicy: "all"}
	return []setting{
		{name: "filter_subjects", add: true, flags: repeat(" --filter "+quote+"%s"+quote, c.FilterSubjects)},
		{name: "ack_policy", add: true, flags: " --ack " + ack[c.AckPolicy]},
		{name: "deliver_policy", add: true, flags: " --deliver all"},
		{name: "ack_wait", add: true, flags: fmt.Sprintf(" --wait %s", c.AckWait)},
		{name: "max_deliver", add: true, flags: " --max-deliver=-1"},
		{name: "max_ack_pending", add: c.MaxAckPending > 0, flags: fmt.Sprintf(" --max-pending %d", c.MaxAckPending)},
		{name: "priority_groups", add: c.PinnedTTL > 0, flags: fmt.Sprintf(" --pinned-groups %s --pinned-ttl %s", PriorityGroup, c.PinnedTTL)},
		{name: "metadata", add: c.Metadata != nil, flags: " --metadata " + MarkDelivered + "=" + c.Metadata[MarkDelivered]},
	}
}

// addConsumers returns the shell command that creates the consumer of shared delivery, or the consumers of the partitions from first to last.
func addConsumers(l Topology, first, last int) string {
	if !l.Exclusive {
		return "nats consumer add " + l.Stream + " " + l.Consumer + " --pull" + addFlags(consumerTable(l.newConsumer(), "'"))
	}
	c := l.partitionConsumer("$p")
	return fmt.Sprintf(`for p in $(seq %d %d); do nats consumer add %s "%s" --pull%s; done`,
		first, last, l.Stream, c.Durable, addFlags(consumerTable(c, `"`)))
}

// editConsumer returns the command that gives an existing consumer the value that the named setting has in c.
func editConsumer(l Topology, c jetstream.ConsumerConfig, name string) string {
	return "nats consumer edit " + l.Stream + " " + c.Durable + editFlags(consumerTable(c, "'"), name)
}

// consumers inspects the consumers that the worker needs.
func (i *inspection) consumers() {
	wants, worst, found := i.l.newConsumers(), finding.OK, "one for each partition, pinned to one worker at a time"
	var missing []int // numbers of partitions; 0 with shared delivery
	for p, want := range wants {
		what, have := "consumer "+want.Durable, want // as provisioning would create it
		c, err := i.js.Consumer(i.ctx, i.l.Stream, want.Durable)
		if err == nil {
			have = c.CachedInfo().Config
		}
		if !i.l.Exclusive {
			found = fmt.Sprintf("ack wait %s, max ack pending %d, max deliver %d", have.AckWait, have.MaxAckPending, have.MaxDeliver)
		}
		if p == 0 && !i.fit(jsapi.Filters(have)) {
			return // the other consumers would be useless too
		}
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
			missing, worst = append(missing, p), finding.Error
		case err != nil:
			i.failed(what, err, "it must be a pull consumer, and the account must be allowed to read it")
			worst = finding.Error
		default:
			worst = max(worst, i.report(what, i.consumerSettings(have, want)))
			i.paused(what, c.CachedInfo())
		}
	}
	for len(missing) > 0 {
		missing = i.missingFrom(missing, wants)
	}
	if worst == finding.OK {
		i.ok(consumersFrom(wants, 0, len(wants)-1), found)
	}
}

// consumersFrom names the consumers from first to last.
func consumersFrom(wants []jetstream.ConsumerConfig, first, last int) string {
	if first == last {
		return "consumer " + wants[first].Durable
	}
	return fmt.Sprintf("consumers %s to %d", wants[first].Durable, last)
}

// missingFrom reports the consumers at the start of the list whose numbers are consecutive, and returns the remaining list.
func (i *inspection) missingFrom(list []int, wants []jetstream.ConsumerConfig) []int {
	n := 1
	for n < len(list) && list[n] == list[0]+n {
		n++
	}
	first, last := list[0], list[n-1]
	i.reportMissing(consumersFrom(wants, first, last), "not there"+when(i.hasInterest(), ", and with interest retention the stream drops inputs "+
		"for which there is no consumer: create the consumers before anybody publishes"), addConsumers(i.l, first, last))
	return list[n:]
}

// consumerSettings returns the table of possible problems of a consumer's settings. The worker's variables apply only when a consumer
// is created. An existing consumer keeps its settings when the variables change.
func (i *inspection) consumerSettings(have, want jetstream.ConsumerConfig) []problem {
	table, consumers := i.sharedSettings(have, want), 1
	if i.l.Exclusive {
		table, consumers = i.partitionSettings(have, want), i.l.Partitions
	}
	want.MaxAckPending = i.l.AskedAckPending
	acknowledges := have.AckPolicy != jetstream.AckNonePolicy            // ack wait applies only with acknowledgements
	possible := have.AckWait >= time.Second && have.AckWait <= time.Hour // the bounds of MILLRACE_ACK_WAIT
	pending, limit := have.MaxAckPending, int(i.maxPayload)
	return append(table, []problem{
		{pending > 0 && pending*consumers < i.use.InFlight, finding.Warning, fmt.Sprintf("max ack pending %d", pending),
			fmt.Sprintf("the pipelines can hold %d payloads; raise max ack pending, or lower MILLRACE_BATCH_PAYLOADS or MILLRACE_LANES, or they "+
				"are never full", i.use.InFlight)},
		{acknowledges && have.AckWait != want.AckWait, finding.Warning,
			fmt.Sprintf("ack wait %s, and MILLRACE_ACK_WAIT is %s", have.AckWait, want.AckWait),
			"the consumer's setting applies; " + when(possible, "set MILLRACE_ACK_WAIT=%s, or ", have.AckWait) +
				"change the consumer (" + editConsumer(i.l, want, "ack_wait") + ")"},
		{acknowledges && i.use.Linger >= have.AckWait, finding.Warning,
			fmt.Sprintf("ack wait %s, and MILLRACE_LINGER is %s", have.AckWait, i.use.Linger),
			"payloads may be delivered again while they wait for their batch; lower MILLRACE_LINGER or raise the consumer's ack wait"},
		{pending > 0 && pending < want.MaxAckPending, finding.Warning,
			fmt.Sprintf("max ack pending %d, and MILLRACE_MAX_ACK_PENDING is %d", pending, want.MaxAckPending),
			"all workers of the consumer share it, and some may wait for others; change it (" +
				editConsumer(i.l, want, "max_ack_pending") + ")"},
		{have.HeadersOnly, finding.Error, "headers only",
			"messages arrive without payloads, so every result would be that of an empty payload; create it without headers_only"},
		{have.MaxRequestMaxBytes > 0 && have.MaxRequestMaxBytes < limit, finding.Warning,
			fmt.Sprintf("max request max bytes %d, and the server takes messages of %d", have.MaxRequestMaxBytes, limit),
			"a message larger than that bound stops the consumer; raise or clear it"},
	}...)
}

// sharedSettings returns the rows of consumerSettings for the consumer of shared delivery.
func (i *inspection) sharedSettings(have, want jetstream.ConsumerConfig) []problem {
	filters := jsapi.Filters(have)
	all := slices.Contains(filters, ">")
	return []problem{
		{have.AckPolicy != jetstream.AckExplicitPolicy, finding.Error, fmt.Sprintf("ack policy %s", have.AckPolicy),
			"create it with explicit acknowledgement"},
		{have.Durable == "", finding.Warning, "not durable", "create it with a durable name, or its position is lost when the server removes it"},
		{have.MaxDeliver == 1, finding.Error, "max deliver 1", "a payload is lost with the first worker that dies; raise it or make it unlimited"},
		{have.MaxDeliver > 1, finding.Warning, fmt.Sprintf("max deliver %d", have.MaxDeliver),
			"a payload whose last delivery dies with a worker is never delivered again; make max deliver unlimited and let MILLRACE_MAX_DELIVER " +
				"count"},
		{all && i.input != nil && !allCovered(i.input.Config.Subjects, want.FilterSubjects), finding.Warning,
			fmt.Sprintf("has no filter, so it gets every input of stream %s, and MILLRACE_SUBJECTS is only %v", i.l.Stream, want.FilterSubjects),
			"make them agree (" + editConsumer(i.l, want, "filter_subjects") + " --force)"},
		{!all && !sameSubjects(filters, want.FilterSubjects), finding.Warning,
			fmt.Sprintf("filters %v, and MILLRACE_SUBJECTS is %v", filters, want.FilterSubjects), "the consumer's filters apply; make them agree"},
	}
}

// partitionSettings returns the rows of consumerSettings for the consumer of a partition.
func (i *inspection) partitionSettings(have, want jetstream.ConsumerConfig) []problem {
	return []problem{
		{have.AckPolicy != want.AckPolicy || have.PriorityPolicy != want.PriorityPolicy, finding.Error, fmt.Sprintf("ack policy %s", have.AckPolicy),
			when(i.hasInterest(), "its inputs would go with it, so first keep them (nats stream edit %s --retention limits); ", i.l.Stream) +
				"delete it and set MILLRACE_PROVISION=true: it must acknowledge all at once and be pinned to one client (priority policy " +
				"pinned_client, group " + PriorityGroup + ")"},
		{!sameSubjects(jsapi.Filters(have), want.FilterSubjects), finding.Error,
			fmt.Sprintf("filters %v, want %v", jsapi.Filters(have), want.FilterSubjects), "make them agree"},
		{have.MaxDeliver > 0, finding.Error, fmt.Sprintf("max deliver %d", have.MaxDeliver),
			"make it unlimited: what the server does not deliver any more would be acknowledged with later ones"},
	}
}

// paused reports a paused consumer, which delivers nothing.
func (i *inspection) paused(what string, c *jetstream.ConsumerInfo) {
	if c.Paused {
		i.warn(what, fmt.Sprintf("is paused for %s, and delivers nothing until then", c.PauseRemaining.Round(time.Second)),
			fmt.Sprintf("resume it, unless that's meant (nats consumer resume %s %s --force)", c.Stream, c.Name))
	}
}

// fit reports false if a worker can't receive its inputs from the input stream.
func (i *inspection) fit(filters []string) bool {
	if i.input == nil {
		return true
	}
	found, advice := unfit(i.input.Config, i.l, filters)
	if found != "" {
		i.say(finding.Error, "stream "+i.l.Stream, found, advice)
	}
	return found == ""
}

func (i *inspection) hasInterest() bool {
	return i.input != nil && i.input.Config.Retention == jetstream.InterestPolicy
}

// serverPatience is the time limit for each query about the removal of messages.
const serverPatience = 2 * time.Second

// processed inspects whether processed inputs, and no other inputs, are removed from the input stream.
func (i *inspection) processed() {
	if i.input == nil {
		return
	}
	c, want := i.input.Config, i.marked(i.input.Config)
	what := "processed inputs in stream " + c.Name
	switch {
	case c.Retention == jetstream.InterestPolicy:
		want.Retention = jetstream.LimitsPolicy
		i.warn(what, "retention by interest: when any consumer of the stream is removed, also one of another program that only looks, "+
			"nats-server may remove inputs that nobody has processed (docs/streams.md)", "have the workers remove processed inputs instead "+
			"("+editStream(want, "retention", "discard", "metadata")+"); they may keep running")
	case c.Retention == jetstream.WorkQueuePolicy:
		consumer, err := i.js.Consumer(i.ctx, i.l.Stream, i.l.Consumer)
		if err != nil {
			return // the problem is already reported
		}
		if s, err := i.js.Stream(i.ctx, i.l.Stream); err == nil { // this later query omits inputs that were processed since
			i.leftInQueue(what, s.CachedInfo(), consumer.CachedInfo())
		}
	case i.l.Kept.AskedEverything && trim.Marked(c):
		i.warn(what, "workers remove them, and MILLRACE_STREAM_RETENTION asks for limits", "remove "+trim.MarkKey+
			" from the stream's metadata, or leave the variable out")
	default:
		i.trimmed(what)
	}
}

// marked returns the configuration with which workers trim the input stream c.
func (i *inspection) marked(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Metadata = trim.WithMark(c, i.l.Consumers())
	return c
}

// trimmed inspects a stream with retention by limits.
func (i *inspection) trimmed(what string) {
	c, mark := i.input.Config, editStream(i.marked(i.input.Config), "metadata")
	ctx, cancel := context.WithTimeout(i.ctx, serverPatience)
	defer cancel()
	trimmer := i.l.trimmer(i.js)
	state, err := trimmer.Look(ctx, i.input)
	if err == nil && state.Held == trim.None {
		ctx, cancel := context.WithTimeout(i.ctx, serverPatience)
		defer cancel()
		err = trimmer.May(ctx, c)
	}
	fills := c.Discard == jetstream.DiscardNew && c.MaxAge == 0
	switch {
	case err != nil:
		subjects := []string{i.l.API.Subject("CONSUMER.LIST." + c.Name), i.l.API.Subject("STREAM.MSG.GET." + c.Name),
			i.l.API.Subject("STREAM.PURGE." + c.Name)}
		i.warn(what, "this worker can't remove them, so the stream fills unless another deployment's workers do: "+err.Error(),
			"allow the worker's user to publish on "+strings.Join(subjects, ", ")+", and have its consumers registered ("+mark+
				"); or set MILLRACE_STREAM_TRIM=false")
	case state.Held == trim.NotTrimmed && i.l.Trim == trim.Auto && !i.l.Kept.AskedEverything && fills:
		i.warn(what, "they stay, and the stream refuses new inputs when it is full: workers trim only streams with a mark",
			"have the workers remove them ("+mark+")")
	case state.Held == trim.NotTrimmed:
	case state.Held != trim.None:
		i.warn(what, "they stay: "+state.Explain(), "see docs/streams.md, \"How processed inputs leave the stream\"")
	case state.Holder != "":
		i.say(finding.OK, what, fmt.Sprintf("workers remove them; consumer %s holds the floor, %d sequences before the end", state.Holder,
			state.Behind()), "")
	default:
		i.ok(what, "workers remove them")
	}
}

// leftInQueue reports acknowledged inputs that the server has kept in a work queue. That happens when the server is killed.
func (i *inspection) leftInQueue(what string, info *jetstream.StreamInfo, c *jetstream.ConsumerInfo) {
	floor, filters := c.AckFloor.Stream, jsapi.Filters(c.Config)
	if info.State.Msgs == 0 || info.State.FirstSeq > floor || !allCovered(info.Config.Subjects, filters) {
		return
	}
	i.warn(what, fmt.Sprintf("the work queue holds inputs up to sequence %d that are acknowledged, as after a crash of the server: nobody "+
		"gets them again, and they count against its limits", floor),
		fmt.Sprintf("remove them (nats stream purge %s --seq %d --force)", i.l.Stream, floor+1))
}
