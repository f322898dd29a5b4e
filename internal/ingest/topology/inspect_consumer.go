package topology

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

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
