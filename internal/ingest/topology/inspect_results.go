package topology

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/lookup"
	"millrace/internal/ingest/publisher"
	"millrace/internal/wildcard"
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

type deadLetterInspector struct{ streamInspector }

func (i deadLetterInspector) inspect() {
	what := "dead letters " + i.l.DeadLetterPrefix + ".>"
	name, err := streamOf(i.ctx, i.js, i.l.DeadLetterPrefix, i.l.Subjects)
	switch {
	case err != nil:
		i.sayStreamOf(what, err, "MILLRACE_DEADLETTER_PREFIX")
		return
	case name == "":
		i.reportMissing(what, "no stream stores them, so payloads that cannot be processed would be redelivered forever", addStream(i.withReplicas(deadLetterSettings(i.js, i.l))))
		return
	}
	wanted := deadLetterSettings(i.js, i.l)
	wanted.Name = name
	info, ok := i.stream(wanted, "the dead letters")
	if !ok {
		return
	}
	c := info.Config
	switch {
	case name == i.l.ResultStream: // resultInspector checks its other settings
		i.say(finding.Warning, what, "stored in the result stream "+name+", where every reader of results gets them too", i.howToMove(c))
		i.exactlyOnce(what, c, i.l.LetterCommitsOf)
	case settingsInspector{i.inspection}.refusals(what, "a dead letter", c):
		i.durability(what, fmt.Sprintf("%sstored in stream %s, %s storage, %d replicas, keeps %s", i.markers(info), name, c.Storage, c.Replicas, keeps(c)), c)
		i.discards(what, c, i.l.Kept.DeadLetters)
		i.bounds(what, deadLetterRole, info, wanted, i.l.Kept.DeadLetters)
		i.exactlyOnce(what, c, i.l.LetterCommitsOf)
	}
}

// markers returns a text with the number of commit markers in a stream, because they aren't dead letters. The text is empty for a
// stream without messages, or if the server doesn't count the markers.
func (i deadLetterInspector) markers(info *jetstream.StreamInfo) string {
	if info.State.Msgs == 0 || i.l.CommitPrefix == "" {
		return ""
	}
	s, err := i.js.Stream(i.ctx, info.Config.Name)
	if err != nil {
		return ""
	}
	counted, err := s.Info(i.ctx, jetstream.WithSubjectFilter(CommitSubjects(i.l.CommitPrefix, info.Config.Name)))
	if err != nil {
		return ""
	}
	markers := uint64(0)
	for _, n := range counted.State.Subjects {
		markers += n
	}
	return fmt.Sprintf("%d of its %d messages are commit markers, which are no dead letters; ", markers, counted.State.Msgs)
}

// howToMove returns the commands that give dead letters their own stream. Between the two commands no stream has the subjects of
// dead letters, because two streams can't share subjects. A payload that is given up in between is redelivered. With --force the
// first command has no prompt, so both commands can be pasted at once.
func (i deadLetterInspector) howToMove(results jetstream.StreamConfig) string {
	dead := mappedSubjects(i.l.DeadLetterPrefix)
	keep := slices.DeleteFunc(slices.Clone(results.Subjects), func(s string) bool {
		return slices.ContainsFunc(dead, func(d string) bool { return wildcard.Covers(s, d) || wildcard.Covers(d, s) })
	})
	if !slices.ContainsFunc(keep, func(s string) bool { return wildcard.Covers(s, i.l.ResultPrefix+".>") }) {
		keep = append(keep, mappedSubjects(i.l.ResultPrefix)...) // one wildcard covered both
		if i.l.wantsMarkers() {
			keep = append(keep, CommitSubjects(i.l.CommitPrefix, results.Name))
		}
		slices.Sort(keep)
		keep = slices.Compact(keep)
	}
	apart := i.withReplicas(deadLetterSettings(i.js, i.l))
	apart.Name, apart.Duplicates = results.Name+deadLetterSuffix, results.Duplicates
	if apart.MaxAge > 0 {
		apart.Duplicates = min(apart.Duplicates, apart.MaxAge) // the server accepts no longer window
	}
	return fmt.Sprintf("give them their own stream: nats stream edit %s%s --force, then %s. Dead letters that are already stored stay in %s",
		results.Name, subjectFlags(keep), addStream(apart), results.Name)
}

// exactlyOnce reports whether a stream stores messages exactly once according to judge, and adds findings. If the
// worker stores no commit markers, it returns false without findings.
func (i streamInspector) exactlyOnce(what string, c jetstream.StreamConfig, judge func(jetstream.StreamConfig, string) (Commits, string, string)) bool {
	if !i.l.wantsMarkers() {
		return false
	}
	way, found, advice := judge(c, i.nc.ConnectedServerVersion())
	if way == NoCommits {
		if !i.l.ResultIDs && c.Name == i.l.ResultStream {
			found += "; so MILLRACE_RESULT_IDS=false has no effect, and results have their ids"
		}
		level, instead := finding.Warning, "; or set MILLRACE_EXACTLY_ONCE=off, if the window is enough"
		if i.l.ExactlyOnce == Required {
			level, instead = finding.Error, "; or set MILLRACE_EXACTLY_ONCE=auto, if the window is enough"
		}
		i.say(level, what, found, advice+instead)
		return false
	}
	if err := i.readMarker(c.Name); err != nil {
		i.failed(what, err, "allow the worker's user to publish on "+i.l.API.Subject("STREAM.MSG.GET."+c.Name)+" and on "+CommitSubjects(i.l.CommitPrefix, c.Name)+" (docs/security.md)")
		return true
	}
	i.say(finding.OK, what, found, "")
	if c.Retention == jetstream.WorkQueuePolicy && !c.AllowRollup {
		i.say(finding.Warning, what, "keeps every commit marker, one per batch, because nothing removes them from a work queue",
			"have each marker replace the one before (nats stream edit "+c.Name+" --allow-rollup)")
	}
	return true
}

// markerPatience is the time limit for reading a commit marker.
const markerPatience = 5 * time.Second

// readMarker checks whether the worker may read a stream's commit markers. The server also answers if there is no
// marker.
func (i streamInspector) readMarker(stream string) error {
	ctx, cancel := context.WithTimeout(i.ctx, markerPatience)
	defer cancel()
	request := fmt.Appendf(nil, `{"last_by_subj":%q}`, CommitSubject(i.l.CommitPrefix, stream, i.l.Stream, i.l.Consumer, 0))
	if _, err := i.nc.RequestWithContext(ctx, i.l.API.Subject("STREAM.MSG.GET."+stream), request); err != nil {
		return fmt.Errorf("read the last commit marker of stream %q: %w", stream, err)
	}
	return nil
}
