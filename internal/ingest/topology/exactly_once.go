package topology

// This file decides how often a stream may store a result or a dead letter. With exclusive delivery, a stream stores each message
// exactly once if each batch can end with a commit marker. A marker is a message on a subject of the partition. Otherwise it stores
// each message once within its duplicate window.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/lookup"
	"millrace/internal/ingest/store"
	"millrace/internal/wildcard"
)

const (
	once         = "exactly once: "
	withinWindow = "within the duplicate window: "
)

// CommitsOf returns the kind of commits in the result stream c, given the server's version. found describes the kind for the log
// and for `worker check`. advice describes how to enable commit markers. advice is empty if commit markers are enabled or not
// wanted. Fast batches need retention by limits and a single replica, because a fence ends an earlier owner's fast batch
// immediately only on such a stream.
func (l Topology) CommitsOf(c jetstream.StreamConfig, serverVersion string) (way Commits, found, advice string) {
	fast := c.Retention != jetstream.WorkQueuePolicy && c.Replicas <= 1 // a stream with retention by interest can't have markers
	return l.commitsOf(c, serverVersion, fast, "each batch is", l.ResultPrefix)
}

// LetterCommitsOf does the same as CommitsOf for the stream of dead letters, which must support atomic batches.
func (l Topology) LetterCommitsOf(c jetstream.StreamConfig, serverVersion string) (way Commits, found, advice string) {
	if c.Name == l.ResultStream && l.wantsMarkers() {
		return NoCommits, withinWindow + "the commit markers of this stream are those of the results", "give dead letters their own stream"
	}
	return l.commitsOf(c, serverVersion, false, "dead letters are", l.DeadLetterPrefix)
}

// commitsOf returns the kind of commits in a stream of messages under prefix. fast reports whether fast batches are possible in this
// stream. are is the subject and the verb of a text about commits.
func (l Topology) commitsOf(c jetstream.StreamConfig, version string, fast bool, are, prefix string) (way Commits, found, advice string) {
	batches := "allow_atomic" // the setting that the stream lacks
	switch {
	case c.AllowAtomicPublish, fast && c.AllowBatchPublish:
		batches = ""
	case fast && store.ServerBatches(version):
		batches = "allow_batched"
	}
	found, advice = l.noMarkers(c, version, batches)
	committed := once + are + " committed with a marker "
	switch {
	case found != "":
		return NoCommits, withinWindow + found, advice
	case fast && c.AllowBatchPublish:
		return FastCommits, committed + "(fast batches)", ""
	}
	return AtomicCommits, committed + "(atomic batches)" + keepMarkers(c, prefix), ""
}

// wantsMarkers reports whether the worker stores commit markers in streams that support them.
func (l Topology) wantsMarkers() bool {
	return l.Exclusive && l.ExactlyOnce != Off && l.CommitPrefix != ""
}

// noMarkers returns the reason why a stream can have no commit markers, and advice on enabling them. found is empty if the stream
// can have markers. batches is the setting that the stream lacks to allow batches with a marker, or empty.
func (l Topology) noMarkers(c jetstream.StreamConfig, version, batches string) (found, advice string) {
	subjects := CommitSubjects(l.CommitPrefix, c.Name)
	switch {
	case !l.Exclusive:
		return "delivery is shared", ""
	case !l.wantsMarkers():
		return "MILLRACE_EXACTLY_ONCE is off", ""
	case !atomicBatches.In(version):
		return "server " + version + " has no atomic batches", "upgrade it to 2.14 or later"
	case c.SubjectTransform != nil:
		return "the stream maps subjects (" + transformText(c.SubjectTransform) + "), so commit markers can't be found by their subject",
			"use a stream without a subject transform"
	case c.Retention == jetstream.InterestPolicy:
		return "with retention interest the server drops commit markers, for which there is no consumer",
			l.howToCommit(c, batches) + "; the stream then keeps messages that are read, up to its limits"
	case c.DiscardNewPerSubject && c.MaxMsgsPerSubject > 0:
		return fmt.Sprintf("the server refuses commit markers of a partition after %d of them (max_msgs_per_subject, discard_new_per_subject)",
			c.MaxMsgsPerSubject), "use a stream without discard_new_per_subject"
	case c.MaxMsgSize > 0 && c.MaxMsgSize < minMarker:
		want := c
		want.MaxMsgSize = minMarker
		return fmt.Sprintf("the stream takes no message of the size of a commit marker (max_msg_size %d)", c.MaxMsgSize),
			"raise it (" + editStream(want, "max_msg_size") + " --force)"
	case !allCovered([]string{subjects}, c.Subjects):
		return "the stream does not take commit markers (subject " + subjects + ")", l.howToCommit(c, batches)
	case batches != "":
		return "the stream allows no batches that end with a commit marker", l.howToCommit(c, batches)
	}
	return "", ""
}

// minMarker is the smallest max_msg_size, in bytes, of a stream that supports commit markers. A marker of results has about 400
// bytes with its headers.
const minMarker = 1024

// howToCommit returns advice with the command that makes a stream support commit markers. The stream keeps its present subjects.
// batches is the same as for noMarkers.
func (l Topology) howToCommit(c jetstream.StreamConfig, batches string) string {
	var settings []string
	if c.Retention == jetstream.InterestPolicy {
		c.Retention = jetstream.LimitsPolicy
		settings = append(settings, "retention")
	}
	if subjects := CommitSubjects(l.CommitPrefix, c.Name); !allCovered([]string{subjects}, c.Subjects) {
		c.Subjects = slices.DeleteFunc(slices.Clone(c.Subjects), func(s string) bool { return wildcard.Covers(subjects, s) })
		c.Subjects = append(c.Subjects, subjects)
		settings = append(settings, "subjects")
	}
	if batches != "" {
		settings = append(settings, batches)
	}
	return "have the stream take commit markers (" + editStream(c, settings...) + " --force)"
}

// keepMarkers returns a text about the filter that consumers of a work queue need. It is empty for other streams. Without the
// filter, the consumers would acknowledge commit markers, which the server then removes.
func keepMarkers(c jetstream.StreamConfig, prefix string) string {
	return when(c.Retention == jetstream.WorkQueuePolicy, "; consumers of this work queue need a filter such as %s.>, because the server "+
		"removes a marker that a consumer acknowledges", prefix)
}

// markerPatience is the time limit for reading a commit marker.
const markerPatience = 5 * time.Second

// exactlyOnce reports whether a stream stores messages exactly once according to judge. If the worker stores no commit markers, it
// returns false without findings.
func (s *stream) exactlyOnce(judge func(jetstream.StreamConfig, string) (Commits, string, string)) bool {
	if !s.l.wantsMarkers() {
		return false
	}
	c := s.have
	way, found, advice := judge(c, s.version)
	if way == NoCommits {
		found += when(!s.l.ResultIDs && c.Name == s.l.ResultStream, "; so MILLRACE_RESULT_IDS=false has no effect, and results have their ids")
		level, instead := finding.Warning, "; or set MILLRACE_EXACTLY_ONCE=off, if the window is enough"
		switch {
		case s.l.Stateful != "" && c.Name == s.l.ResultStream:
			level, instead = finding.Error, ""
			found += ", and the state of operator " + s.l.Stateful + " needs exactly once"
		case s.l.ExactlyOnce == Required:
			level, instead = finding.Error, "; or set MILLRACE_EXACTLY_ONCE=auto, if the window is enough"
		}
		s.say(level, s.what, found, advice+instead)
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, markerPatience)
	defer cancel()
	if _, err := jsapi.Last(ctx, s.js, c.Name, CommitSubject(s.l.CommitPrefix, c.Name, s.l.Stream, s.l.Consumer, 0)); err != nil {
		s.failed(s.what, fmt.Errorf("read the last commit marker of stream %q: %w", c.Name, err), "allow the worker's user to publish on "+s.l.API.Subject("STREAM.MSG.GET."+c.Name)+" and on "+
			CommitSubjects(s.l.CommitPrefix, c.Name)+" (docs/security.md)")
		return true
	}
	s.ok(found)
	if c.Retention == jetstream.WorkQueuePolicy && !c.AllowRollup {
		s.warn("keeps every commit marker, one per batch, because nothing removes them from a work queue",
			"have each marker replace the one before ("+editStream(c, "allow_rollup_hdrs")+")")
	}
	return true
}

// markers returns a text with the number of commit markers in a stream, because they aren't dead letters. The text is empty for a
// stream without messages, or if the server doesn't count the markers.
func (s *stream) markers() string {
	if s.state.Msgs == 0 || s.l.CommitPrefix == "" {
		return ""
	}
	counted, err := s.opened.Info(s.ctx, jetstream.WithSubjectFilter(CommitSubjects(s.l.CommitPrefix, s.have.Name)))
	if err != nil {
		return ""
	}
	markers := uint64(0)
	for _, n := range counted.State.Subjects {
		markers += n
	}
	return fmt.Sprintf("%d of its %d messages are commit markers, which are no dead letters; ", markers, counted.State.Msgs)
}

// publishing reports whether results are published in batches or one by one.
func (s *stream) publishing() {
	found, err := store.Ask(s.ctx, s.js, s.have.Name)
	switch {
	case err != nil:
		s.failed(s.what, err, permission)
	case found.Batches:
		s.ok(found.Found)
	default:
		s.warn(found.Found, found.Advice)
	}
}

// duplicates compares the duplicate window of the result stream with the time for which an input may be redelivered. A result that
// is published after the window may be stored a second time.
func (s *stream) duplicates() {
	name, window, ackWait, deliveries := s.have.Name, s.have.Duplicates, s.l.AckWait, s.l.MaxDeliver
	if consumer, err := s.js.Consumer(s.ctx, s.l.Stream, s.l.Consumers()[0]); err == nil { // otherwise the settings for new consumers apply
		settings := consumer.CachedInfo().Config
		ackWait, deliveries = settings.AckWait, DeliveryLimit(deliveries, settings.MaxDeliver)
	}
	span := redeliverySpan(ackWait, deliveries)
	found := fmt.Sprintf("duplicate window %s, and an input may be redelivered for %s (ack wait %s, %d deliveries)",
		window, span, ackWait, deliveries)
	longer := func(d time.Duration) string {
		want := s.have
		want.Duplicates = d
		return fmt.Sprintf("set duplicate_window to %s (%s", d, editStream(want, "duplicate_window"))
	}
	err := lookup.New(s.js, lookup.Options{Input: s.l.Stream, Streams: []string{name}}).Check(s.ctx)
	switch {
	case err == nil && window >= store.SafeWindow:
		found += fmt.Sprintf("; an input that may have a result older than %s is looked up first", store.PublishFor(window))
		s.ok(found)
	case err == nil:
		s.warn(found, fmt.Sprintf("what the network delays for more than %s may be stored a second time; %s)",
			window-store.PublishFor(window), longer(store.SafeWindow)))
	case window < span:
		s.warn(found+"; "+err.Error(), "a result that was stored before may be stored a second time; "+longer(span)+
			"; the server keeps every id for as long in memory), or lower the consumer's ack wait or MILLRACE_MAX_DELIVER")
	default:
		s.warn(found+"; "+err.Error(), fmt.Sprintf("when no worker runs, or one is cut off or stopped, for more than %s, its inputs may get a "+
			"second result; keep results (retention limits), and allow the worker's user to read them (docs/security.md)", store.PublishFor(window)))
	}
}
