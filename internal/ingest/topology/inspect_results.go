package topology

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/lookup"
	"millrace/internal/ingest/publisher"
)

type resultInspector struct{ streamInspector }

func (i resultInspector) inspect() {
	wanted := resultSettings(i.js, i.l)
	info, ok := i.stream(wanted, "the results")
	if !ok {
		return
	}
	c := info.Config
	what, found := "stream "+c.Name, fmt.Sprintf("the results, subjects %v, %s storage, %d replicas, keeps %s", c.Subjects, c.Storage, c.Replicas, keeps(c))
	name, err := streamOf(i.ctx, i.js, i.l.ResultPrefix, i.l.Subjects)
	switch {
	case err != nil:
		i.sayStreamOf(what, err, "MILLRACE_RESULT_PREFIX")
	case name != c.Name:
		who := "no stream does"
		if name != "" {
			who = "stream " + name + " does"
		}
		i.say(finding.Error, what, fmt.Sprintf("does not store %q (%s)", mappedFilters(i.l.ResultPrefix, i.l.Subjects), who),
			"add the subjects to it, or set MILLRACE_RESULT_PREFIX or MILLRACE_RESULT_STREAM")
	case settingsInspector{i.inspection}.refusals(what, "a result", c):
		i.durability(what, found, c)
		i.fits(what, i.limitOfResults())
		i.discards(what, c, i.l.Kept.Results)
		i.bounds(what, resultRole, info, wanted, i.l.Kept.Results)
		if !i.exactlyOnce(what, c, i.l.CommitsOf) {
			i.publishing(what)
			i.duplicates(what, c)
		}
	}
}

// fits warns if the result of one payload may exceed maximum, the size limit of messages.
func (i resultInspector) fits(what string, maximum limit) {
	need := int64(i.use.Frames.Result + resultHeaders)
	if maximum.bytes < need {
		i.say(finding.Warning, what, fmt.Sprintf("a result with its headers may have %d bytes, and %s takes messages of %d: payloads with larger results go to the dead-letter subject (too_large)",
			need, maximum.of, maximum.bytes), maximum.raise+", or use MILLRACE_RESULT_FORMAT=binary or smaller operators")
	}
}

// publishing reports whether results are published in batches or one by one.
func (i resultInspector) publishing(what string) {
	found, err := publisher.Ask(i.ctx, i.js, i.l.ResultStream)
	switch {
	case err != nil:
		i.failed(what, err, "check the account's permissions on the JetStream API")
	case found.Batches:
		i.say(finding.OK, what, found.Found, "")
	default:
		i.say(finding.Warning, what, found.Found, found.Advice)
	}
}

// duplicates compares the duplicate window of the result stream with the time for which an input may be
// redelivered. A result that is published after the window may be stored a second time.
func (i resultInspector) duplicates(what string, c jetstream.StreamConfig) {
	ackWait, deliveries := i.l.AckWait, i.l.MaxDeliver
	if consumer, err := i.js.Consumer(i.ctx, i.l.Stream, i.l.Consumers()[0]); err == nil { // otherwise the settings for new consumers apply
		settings := consumer.CachedInfo().Config
		ackWait, deliveries = settings.AckWait, DeliveryLimit(deliveries, settings.MaxDeliver)
	}
	span := redeliverySpan(ackWait, deliveries)
	found := fmt.Sprintf("duplicate window %s, and an input may be redelivered for %s (ack wait %s, %d deliveries)",
		c.Duplicates, span, ackWait, deliveries)
	err := i.lookups(c.Name)
	switch {
	case err == nil && c.Duplicates >= safeWindow:
		i.say(finding.OK, what, found+fmt.Sprintf("; an input that may have a result older than %s is looked up first", PublishFor(c.Duplicates)), "")
	case err == nil:
		i.say(finding.Warning, what, found, fmt.Sprintf("what the network delays for more than %s may be stored a second time; set duplicate_window "+
			"to %s (nats stream edit %s --dupe-window %s)", c.Duplicates-PublishFor(c.Duplicates), safeWindow, c.Name, window(safeWindow)))
	case c.Duplicates < span:
		i.say(finding.Warning, what, found+"; "+err.Error(), fmt.Sprintf("a result that was stored before may be stored a second time; set "+
			"duplicate_window to %s (nats stream edit %s --dupe-window %s; the server keeps every id for as long in memory), or lower the consumer's "+
			"ack wait or MILLRACE_MAX_DELIVER", span, c.Name, window(span)))
	default:
		i.say(finding.Warning, what, found+"; "+err.Error(), fmt.Sprintf("when no worker runs, or one is cut off or stopped, for more than %s, its inputs may "+
			"get a second result; keep results (retention limits), and allow the worker's user to read them (docs/security.md)", PublishFor(c.Duplicates)))
	}
}

// lookups checks whether the worker can look up stored results.
func (i resultInspector) lookups(stream string) error {
	return lookup.New(i.js, lookup.Options{Input: i.l.Stream, Streams: []string{stream}}).Check(i.ctx)
}
