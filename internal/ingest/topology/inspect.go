package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/trim"
)

// Inspect checks the server, the streams and the consumers for the worker's use u.
func Inspect(ctx context.Context, nc *nats.Conn, l Topology, u Use) []finding.Finding {
	js, err := l.API.New(nc)
	if err != nil {
		return []finding.Finding{{Level: finding.Error, What: "JetStream", Found: err.Error(), Advice: "report this as a bug"}}
	}
	i := &inspection{ctx: ctx, js: js, nc: nc, l: l, use: u, maxPayload: nc.MaxPayload(), cluster: nc.ConnectedClusterName()}
	server, streams := serverInspector{i}, streamInspector{i}
	if !server.inspect() {
		return i.findings
	}
	if !u.Frames.none() {
		i.results = i.limitOfResults()
		server.frames()
	}
	streams.input()
	resultInspector{streams}.inspect()
	deadLetterInspector{streams}.inspect()
	if l.Exclusive {
		partitionInspector{streams}.inspect()
	} else {
		consumerInspector{i}.inspect()
	}
	server.permissions()
	trimInspector{streams}.inspect() // runs after permissions, so its refused requests are only warnings
	return i.findings
}

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

type consumerInspector struct{ *inspection }

func (i consumerInspector) inspect() {
	what := "consumer " + i.l.Consumer
	c, err := i.js.Consumer(i.ctx, i.l.Stream, i.l.Consumer)
	filters := i.l.Subjects // the filters that provisioning would set
	if err == nil {
		filters = orOne(c.CachedInfo().Config.FilterSubjects, c.CachedInfo().Config.FilterSubject)
	}
	if stream, missing := i.js.Stream(i.ctx, i.l.Stream); missing == nil {
		if found, advice := unfit(stream.CachedInfo().Config, i.l, filters); found != "" {
			i.say(finding.Error, "stream "+i.l.Stream, found, advice)
			return
		}
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
		i.reportMissing(what, "not there"+i.dropped(), addConsumer(i.l))
		return
	case err != nil:
		i.failed(what, err, "it must be a pull consumer, and the account must be allowed to read it")
		return
	}
	i.settings(what, c.CachedInfo().Config)
	i.reportPaused(what, c.CachedInfo())
}

// reportPaused reports a reportPaused consumer, which delivers nothing.
func (i *inspection) reportPaused(what string, c *jetstream.ConsumerInfo) {
	if c.Paused {
		i.say(finding.Warning, what, fmt.Sprintf("is paused for %s, and delivers nothing until then", short(c.PauseRemaining.Round(time.Second))),
			fmt.Sprintf("resume it, unless that's meant (nats consumer resume %s %s --force)", c.Stream, c.Name))
	}
}

func (i consumerInspector) settings(what string, c jetstream.ConsumerConfig) {
	found := fmt.Sprintf("ack wait %s, max ack pending %d, max deliver %d", c.AckWait, c.MaxAckPending, c.MaxDeliver)
	worst := finding.OK
	say := func(l finding.Level, found, advice string) { worst = max(worst, l); i.say(l, what, found, advice) }
	if c.AckPolicy != jetstream.AckExplicitPolicy {
		say(finding.Error, fmt.Sprintf("ack policy %s", c.AckPolicy), "create it with explicit acknowledgement")
	}
	if c.Durable == "" {
		say(finding.Warning, "not durable", "create it with a durable name, or its position is lost when the server removes it")
	}
	if c.MaxDeliver == 1 {
		say(finding.Error, found, "with max deliver 1 a payload is lost with the first worker that dies; raise it or make it unlimited")
	} else if c.MaxDeliver > 0 {
		say(finding.Warning, found, "a payload whose last delivery dies with a worker is never delivered again; make max deliver "+
			"unlimited and let MILLRACE_MAX_DELIVER count")
	}
	if c.MaxAckPending > 0 && c.MaxAckPending < i.use.InFlight {
		say(finding.Warning, found, fmt.Sprintf("the pipelines can hold %d payloads; raise max ack pending or lower "+
			"MILLRACE_BATCH_PAYLOADS or MILLRACE_LANES, or they are never full", i.use.InFlight))
	}
	agreement(i.l, i.use, c, say)
	if c.HeadersOnly {
		say(finding.Error, "headers only", "messages arrive without payloads, so every result would be that of an empty payload; create it without headers_only")
	}
	if limit := int(i.maxPayload); c.MaxRequestMaxBytes > 0 && c.MaxRequestMaxBytes < limit {
		say(finding.Warning, fmt.Sprintf("max request max bytes %d, and the server takes messages of %d", c.MaxRequestMaxBytes, limit),
			"a message larger than that bound stops the consumer; raise or clear it")
	}
	filters := c.FilterSubjects
	if c.FilterSubject != "" {
		filters = []string{c.FilterSubject}
	}
	if s, err := i.js.Stream(i.ctx, i.l.Stream); len(filters) == 0 && err == nil && !allCovered(s.CachedInfo().Config.Subjects, i.l.Subjects) {
		say(finding.Warning, fmt.Sprintf("has no filter, so it gets every input of stream %s, and MILLRACE_SUBJECTS is only %v", i.l.Stream, i.l.Subjects),
			fmt.Sprintf("make them agree (nats consumer edit %s %s%s --force)", i.l.Stream, i.l.Consumer, filterFlags(i.l.Subjects, "'")))
	}
	if len(filters) > 0 && !sameSubjects(filters, i.l.Subjects) {
		say(finding.Warning, fmt.Sprintf("filters %v, and MILLRACE_SUBJECTS is %v", filters, i.l.Subjects),
			"the consumer's filters apply; make them agree")
	}
	if worst == finding.OK {
		i.say(finding.OK, what, found, "")
	}
}

// trimInspector checks that processed inputs, and no other inputs, are removed from the input stream.
type trimInspector struct{ streamInspector }

// trimPatience is the time limit for each of trimInspector's checks that query the server.
const trimPatience = 2 * time.Second

func (i trimInspector) inspect() {
	s, err := i.js.Stream(i.ctx, i.l.Stream)
	if err != nil {
		return // the error is reported already
	}
	info, what := s.CachedInfo(), "processed inputs in stream "+i.l.Stream
	switch c := info.Config; {
	case c.Retention == jetstream.InterestPolicy:
		i.say(finding.Warning, what, "retention by interest: when any consumer of the stream is removed, also one of another program that only looks, "+
			"nats-server may remove inputs that nobody has processed (docs/streams.md)",
			fmt.Sprintf("have the workers remove processed inputs instead (nats stream edit %s --retention limits --discard new%s); they may keep running",
				c.Name, trim.MetadataFlags(trim.WithMark(c, i.l.Consumers()))))
	case c.Retention == jetstream.WorkQueuePolicy:
		i.workQueue(what, info)
	case i.l.Kept.AskedEverything && trim.Marked(c):
		i.say(finding.Warning, what, "workers remove them, and MILLRACE_STREAM_RETENTION asks for limits", fmt.Sprintf("remove %s from the stream's metadata, or "+
			"leave the variable out", trim.MarkKey))
	default:
		i.trimmed(what, info)
	}
}

// trimmed checks a stream with retention by limits.
func (i trimInspector) trimmed(what string, info *jetstream.StreamInfo) {
	ctx, cancel := context.WithTimeout(i.ctx, trimPatience)
	defer cancel()
	state, err := trim.Look(ctx, i.js, info, i.l.Trim)
	if err == nil && state.Held == trim.None {
		ctx, cancel := context.WithTimeout(i.ctx, trimPatience)
		defer cancel()
		err = trim.May(ctx, i.js, info.Config, i.l.Consumers())
	}
	c := info.Config
	switch {
	case err != nil:
		i.say(finding.Warning, what, fmt.Sprintf("this worker can't remove them, so the stream fills unless another deployment's workers do: %v", err),
			fmt.Sprintf("allow the worker's user to publish on %s, and have its consumers registered (nats stream edit %s%s); or set MILLRACE_STREAM_TRIM=false",
				strings.Join(i.subjects(c.Name), ", "), c.Name, trim.MetadataFlags(trim.WithMark(c, i.l.Consumers()))))
	case state.Held == trim.NotTrimmed && c.Discard == jetstream.DiscardNew && c.MaxAge == 0 && !i.l.Kept.AskedEverything && i.l.Trim == trim.Auto:
		i.say(finding.Warning, what, "they stay, and the stream refuses new inputs when it is full: workers trim only streams with a mark",
			fmt.Sprintf("have the workers remove them (nats stream edit %s%s)", c.Name, trim.MetadataFlags(trim.WithMark(c, i.l.Consumers()))))
	case state.Held == trim.NotTrimmed:
	case state.Held != trim.None:
		i.say(finding.Warning, what, "they stay: "+state.Explain(), "see docs/streams.md, \"How processed inputs leave the stream\"")
	case state.Holder != "":
		i.say(finding.OK, what, fmt.Sprintf("workers remove them; consumer %s holds the floor, %d sequences before the end", state.Holder, state.Behind()), "")
	default:
		i.say(finding.OK, what, "workers remove them", "")
	}
}

// subjects returns the API subjects on which a worker must be allowed to publish for trimming a stream.
func (i trimInspector) subjects(stream string) (subjects []string) {
	for _, request := range []string{"CONSUMER.LIST", "STREAM.MSG.GET", "STREAM.PURGE"} {
		subjects = append(subjects, i.l.API.Subject(request+"."+stream))
	}
	return subjects
}

// workQueue checks a work queue, from which the server itself removes inputs.
func (i trimInspector) workQueue(what string, info *jetstream.StreamInfo) {
	if c, err := i.js.Consumer(i.ctx, i.l.Stream, i.l.Consumer); err == nil { // an error is reported already
		i.leftInQueue(what, info, c.CachedInfo())
	}
}

// leftInQueue reports acknowledged inputs that the server has kept. That happens when the server is killed.
func (i trimInspector) leftInQueue(what string, info *jetstream.StreamInfo, c *jetstream.ConsumerInfo) {
	floor := c.AckFloor.Stream
	if info.State.Msgs == 0 || info.State.FirstSeq > floor || !coversAll(c.Config, info.Config) {
		return
	}
	i.say(finding.Warning, what, fmt.Sprintf("the work queue holds inputs up to sequence %d that are acknowledged, as after a crash of the server: nobody gets them "+
		"again, and they count against its limits", floor), fmt.Sprintf("remove them (nats stream purge %s --seq %d --force)", i.l.Stream, floor+1))
}

// coversAll reports whether a consumer receives every message of its stream.
func coversAll(c jetstream.ConsumerConfig, s jetstream.StreamConfig) bool {
	filters := orOne(c.FilterSubjects, c.FilterSubject)
	return len(filters) == 0 || allCovered(s.Subjects, filters)
}
