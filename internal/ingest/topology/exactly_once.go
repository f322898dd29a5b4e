package topology

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/publisher"
	"millrace/internal/wildcard"
)

const (
	once         = "exactly once: "
	withinWindow = "within the duplicate window: "
)

// CommitsOf returns the kind of commits in the result stream c, given the server's version. found describes the kind for the log
// and for `worker check`. advice describes how to enable commit markers. advice is empty if commit markers are enabled or not
// wanted.
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

// LetterCommitsOf does the same as CommitsOf for the stream of dead letters, which must support atomic batches.
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

// wantsMarkers reports whether the worker stores commit markers in streams that support them.
func (l Topology) wantsMarkers() bool {
	return l.Exclusive && l.ExactlyOnce != Off && l.CommitPrefix != ""
}

// noMarkers returns the reason why a stream can have no commit markers, and advice on enabling them. found is empty if the stream
// can have markers. flag is the flag of `nats stream edit` that allows the batches.
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
	case c.MaxMsgSize > 0 && c.MaxMsgSize < minMarker:
		return fmt.Sprintf("the stream takes no message of the size of a commit marker (max_msg_size %d)", c.MaxMsgSize),
			fmt.Sprintf("raise it (nats stream edit %s --max-msg-size %d --force)", c.Name, minMarker)
	case !takes(c, subjects):
		return "the stream does not take commit markers (subject " + subjects + ")", l.howToCommit(c, flag)
	}
	return "", ""
}

// minMarker is the smallest max_msg_size, in bytes, of a stream that supports commit markers. A marker of results has about 400
// bytes with its headers.
const minMarker = 1024

// howToCommit returns advice with the command that makes a stream support commit markers. The stream keeps its present subjects.
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

// isSingle reports whether a stream has retention by limits and a single replica. A fence ends an earlier owner's fast
// batch immediately only on such a stream.
func isSingle(c jetstream.StreamConfig) bool {
	return c.Retention == jetstream.LimitsPolicy && c.Replicas <= 1
}

// resultFlag returns the flag of `nats stream edit` that makes the result stream allow batches with a commit marker. The flag is
// empty if the stream already allows such batches.
func resultFlag(c jetstream.StreamConfig, version string) string {
	if c.Retention == jetstream.InterestPolicy {
		c.Retention = jetstream.LimitsPolicy // the same command sets this
	}
	switch {
	case isSingle(c) && c.AllowBatchPublish:
		return ""
	case isSingle(c) && !c.AllowAtomicPublish && publisher.ServerBatches(version):
		return " --allow-fast"
	}
	return atomicFlag(c)
}

// atomicFlag does the same as resultFlag for atomic batches.
func atomicFlag(c jetstream.StreamConfig) string {
	if c.AllowAtomicPublish {
		return ""
	}
	return " --allow-batch"
}

// keepMarkers returns a text about the filter that consumers of a work queue need. It is empty for other streams. Without the
// filter, the consumers would acknowledge commit markers, which the server then removes.
func keepMarkers(c jetstream.StreamConfig, prefix string) string {
	if c.Retention != jetstream.WorkQueuePolicy {
		return ""
	}
	return fmt.Sprintf("; consumers of this work queue need a filter such as %s.>, because the server removes a marker that a consumer acknowledges", prefix)
}

// markSettings makes the settings of a new stream support commit markers, if the worker stores them and the server supports them.
func (l Topology) markSettings(c *jetstream.StreamConfig, version string) {
	if !l.wantsMarkers() || !atomicBatches.In(version) {
		return
	}
	c.AllowAtomicPublish = true
	c.Subjects = append(slices.Clone(c.Subjects), CommitSubjects(l.CommitPrefix, c.Name))
}

// The oldest releases of nats-server that the delivery modes support. `.ci/run oldest` runs both modes on the first versions of
// these releases.
var (
	// OldestShared is the first release with several filters per consumer, and with metadata of streams and consumers.
	OldestShared = jsapi.Release{Major: 2, Minor: 10}

	// OldestExclusive is the first release with both pinned consumers and requests that reset consumers.
	OldestExclusive = jsapi.Release{Major: 2, Minor: 14}
)

// atomicBatches is the first release with atomic batches.
var atomicBatches = jsapi.Release{Major: 2, Minor: 12}

// levelExclusive is the JetStream API level of OldestExclusive.
const levelExclusive = 4

// tooOld returns the problem and the advice if the server is too old, and otherwise empty texts. version is the version of the
// connected server. If JetStream is in a domain or another account, tooOld checks level instead, the level of its API. Servers
// before 2.11 have no level.
func tooOld(version string, level int, l Topology) (found, advice string) {
	const shared = ", or set MILLRACE_DELIVERY=shared, which needs "
	switch elsewhere := l.API != (jsapi.API{}); {
	case elsewhere && l.Exclusive && level < levelExclusive:
		return fmt.Sprintf("JetStream elsewhere has level %d of its API, and exclusive delivery needs level %d, of nats-server %s", level, levelExclusive, OldestExclusive),
			"upgrade its servers" + shared + OldestShared.String()
	case elsewhere:
	case !OldestShared.In(version):
		return "version " + version + ", and Millrace needs nats-server " + OldestShared.String(), "upgrade the server"
	case l.Exclusive && !OldestExclusive.In(version):
		return "version " + version + ", and exclusive delivery needs nats-server " + OldestExclusive.String(), "upgrade the server" + shared + OldestShared.String()
	}
	return "", ""
}

// levelTimeout is the time limit for the query of the API level. A cluster without a leader doesn't answer.
const levelTimeout = 5 * time.Second

// apiLevel returns the level of the JetStream API. It is 0 if the server has none.
func apiLevel(ctx context.Context, nc *nats.Conn, api jsapi.API) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, levelTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, api.Subject("INFO"), nil)
	if err != nil {
		return 0, err
	}
	var info struct {
		API struct {
			Level int `json:"level"`
		} `json:"api"`
	}
	err = json.Unmarshal(m.Data, &info)
	return info.API.Level, err
}

// oldest returns the oldest release that supports the delivery mode.
func oldest(l Topology) jsapi.Release {
	if l.Exclusive {
		return OldestExclusive
	}
	return OldestShared
}
