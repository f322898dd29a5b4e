package topology

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/publisher"
	"millrace/internal/wildcard"
)

const (
	once         = "exactly once: "
	withinWindow = "within the duplicate window: "
)

// CommitsOf returns how the result stream c stores batches with commit markers, given its server's version. found explains that in
// words for the log and for `worker check`. advice says how to get commit markers; it is empty if there are some, or none are wanted.
func (l Topology) CommitsOf(c jetstream.StreamConfig, serverVersion string) (way Commits, found, advice string) {
	flag := resultFlag(c, serverVersion)
	if found, advice = l.noMarkers(c, serverVersion, flag); found != "" {
		return NoCommits, withinWindow + found, advice
	}
	switch {
	case c.AllowBatchPublish && isSingle(c):
		return FastCommits, once + "each batch is committed with a marker (fast batches)", ""
	case c.AllowAtomicPublish:
		return AtomicCommits, once + "each batch is committed with a marker (atomic batches)" + keepMarkers(c, l.ResultPrefix), ""
	}
	return NoCommits, withinWindow + "the stream allows no batches that end with a commit marker", l.howToCommit(c, flag)
}

// LetterCommitsOf is like CommitsOf, for the stream of dead letters. Those need atomic batches.
func (l Topology) LetterCommitsOf(c jetstream.StreamConfig, serverVersion string) (way Commits, found, advice string) {
	flag := atomicFlag(c)
	found, advice = l.noMarkers(c, serverVersion, flag)
	switch {
	case c.Name == l.ResultStream && l.wantsMarkers():
		return NoCommits, withinWindow + "the commit markers of this stream are those of the results", "give dead letters their own stream"
	case found != "":
		return NoCommits, withinWindow + found, advice
	case !c.AllowAtomicPublish:
		return NoCommits, withinWindow + "the stream allows no atomic batches", l.howToCommit(c, flag)
	}
	return AtomicCommits, once + "dead letters are committed with a marker (atomic batches)" + keepMarkers(c, l.DeadLetterPrefix), ""
}

// wantsMarkers reports whether the worker stores commit markers in streams that take them.
func (l Topology) wantsMarkers() bool {
	return l.Exclusive && l.ExactlyOnce != Off && l.CommitPrefix != ""
}

// noMarkers returns why there are no commit markers in a stream, and how to get them; found is empty if there can be some. flag is what
// `nats stream edit` needs besides to allow the batches.
func (l Topology) noMarkers(c jetstream.StreamConfig, version, flag string) (found, advice string) {
	subjects := CommitSubjects(l.CommitPrefix, c.Name)
	switch {
	case !l.Exclusive:
		return "delivery is shared", ""
	case !l.wantsMarkers():
		return "MILLRACE_EXACTLY_ONCE is off", ""
	case !atomicBatches.In(version):
		return "server " + version + " has no atomic batches", "upgrade it to 2.14 or later"
	case c.SubjectTransform != nil:
		return fmt.Sprintf("the stream maps subjects (%q to %q), so commit markers can't be found by their subject", c.SubjectTransform.Source,
			c.SubjectTransform.Destination), "use a stream without a subject transform"
	case c.Retention == jetstream.InterestPolicy:
		return "with retention interest the server drops commit markers, for which there is no consumer",
			l.howToCommit(c, flag) + "; the stream then keeps messages that are read, up to its limits"
	case c.DiscardNewPerSubject && c.MaxMsgsPerSubject > 0:
		return fmt.Sprintf("the server refuses commit markers of a partition after %d of them (max_msgs_per_subject, discard_new_per_subject)", c.MaxMsgsPerSubject),
			"use a stream without discard_new_per_subject"
	case c.MaxMsgSize > 0 && c.MaxMsgSize < leastMarker:
		return fmt.Sprintf("the stream takes no message of the size of a commit marker (max_msg_size %d)", c.MaxMsgSize),
			fmt.Sprintf("raise it (nats stream edit %s --max-msg-size %d --force)", c.Name, leastMarker)
	case !takes(c, subjects):
		return "the stream does not take commit markers (subject " + subjects + ")", l.howToCommit(c, flag)
	}
	return "", ""
}

// leastMarker is the least max_msg_size of a stream that takes commit markers, in bytes. A marker of results has about 400 bytes with its
// headers.
const leastMarker = 1024

// howToCommit returns the command with which a stream takes commit markers. The stream keeps its present subjects.
func (l Topology) howToCommit(c jetstream.StreamConfig, flag string) string {
	command := "nats stream edit " + c.Name
	if c.Retention == jetstream.InterestPolicy {
		command += " --retention limits"
	}
	if subjects := CommitSubjects(l.CommitPrefix, c.Name); !takes(c, subjects) {
		keep := slices.DeleteFunc(slices.Clone(c.Subjects), func(s string) bool { return wildcard.Covers(subjects, s) })
		command += subjectFlags(append(keep, subjects))
	}
	return "have the stream take commit markers (" + command + flag + " --force)"
}

// takes reports whether a stream stores messages on these subjects.
func takes(c jetstream.StreamConfig, subjects string) bool {
	return slices.ContainsFunc(c.Subjects, func(s string) bool { return wildcard.Covers(s, subjects) })
}

// isSingle reports whether a stream keeps all messages, on one server. There, a fence ends the fast batch of an earlier owner at once.
func isSingle(c jetstream.StreamConfig) bool {
	return c.Retention == jetstream.LimitsPolicy && c.Replicas <= 1
}

// resultFlag returns the flag of `nats stream edit` with which the result stream allows batches that end with a commit marker; empty if
// it allows some.
func resultFlag(c jetstream.StreamConfig, version string) string {
	if c.Retention == jetstream.InterestPolicy {
		c.Retention = jetstream.LimitsPolicy // which the same command sets
	}
	switch {
	case isSingle(c) && c.AllowBatchPublish:
		return ""
	case isSingle(c) && !c.AllowAtomicPublish && publisher.ServerBatches(version):
		return " --allow-fast"
	}
	return atomicFlag(c)
}

// atomicFlag is like resultFlag, for atomic batches.
func atomicFlag(c jetstream.StreamConfig) string {
	if c.AllowAtomicPublish {
		return ""
	}
	return " --allow-batch"
}

// keepMarkers explains what the readers of a work queue must do, because the server removes a message that one of them acknowledges.
func keepMarkers(c jetstream.StreamConfig, prefix string) string {
	if c.Retention != jetstream.WorkQueuePolicy {
		return ""
	}
	return fmt.Sprintf("; consumers of this work queue need a filter such as %s.>, because the server removes a marker that a consumer acknowledges", prefix)
}

// markSettings has a stream to create take commit markers, if the worker stores some and the server supports that.
func (l Topology) markSettings(c *jetstream.StreamConfig, version string) {
	if !l.wantsMarkers() || !atomicBatches.In(version) {
		return
	}
	c.AllowAtomicPublish = true
	c.Subjects = append(slices.Clone(c.Subjects), CommitSubjects(l.CommitPrefix, c.Name))
}
