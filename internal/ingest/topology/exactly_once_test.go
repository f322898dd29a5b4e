package topology

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/wildcard"
)

func TestCommitSubjects(t *testing.T) {
	t.Parallel()
	subject := CommitSubject("commits", "RESULTS", "INGEST", "millrace", 3)
	if want := "commits.RESULTS.INGEST.millrace.3"; subject != want {
		t.Errorf("the subject is %q, want %q", subject, want)
	}
	if filter := CommitSubjects("commits", "RESULTS"); filter != "commits.RESULTS.>" || !wildcard.Covers(filter, subject) {
		t.Errorf("the filter is %q", filter)
	}
}

// commitsCase has a stream and the expected finding about its commit markers.
type commitsCase struct {
	name    string
	stream  jetstream.StreamConfig // without a name
	change  func(*Topology)
	version string // version of the server; empty means 2.15.2
	way     Commits
	found   string
	command string // advised command; empty means none
	advice  string // more text of the advice
}

// marked are the subjects of a stream of results or dead letters that accepts commit markers.
var marked = []string{"results.>", "commits.OUT.>"}

var resultCases = []commitsCase{
	{name: "one replica", stream: jetstream.StreamConfig{Subjects: marked, AllowBatchPublish: true, AllowAtomicPublish: true},
		way: FastCommits, found: "exactly once: each batch is committed with a marker (fast batches)"},
	{name: "a wildcard takes the markers", stream: jetstream.StreamConfig{Subjects: []string{"*.>"}, AllowBatchPublish: true},
		way: FastCommits, found: "exactly once: "},
	{name: "three replicas", stream: jetstream.StreamConfig{Subjects: marked, Replicas: 3, AllowBatchPublish: true, AllowAtomicPublish: true},
		way: AtomicCommits, found: "exactly once: each batch is committed with a marker (atomic batches)"},
	{name: "one replica, atomic batches alone", stream: jetstream.StreamConfig{Subjects: marked, AllowAtomicPublish: true}, way: AtomicCommits, found: "(atomic batches)"},
	{name: "a work queue", stream: jetstream.StreamConfig{Subjects: marked, Retention: jetstream.WorkQueuePolicy, AllowBatchPublish: true, AllowAtomicPublish: true},
		way: AtomicCommits, found: "(atomic batches); consumers of this work queue need a filter such as results.>"},
	{name: "no subject", stream: jetstream.StreamConfig{Subjects: []string{"results", "results.>"}, AllowBatchPublish: true},
		found:   "within the duplicate window: the stream does not take commit markers (subject commits.OUT.>)",
		command: "nats stream edit OUT --subjects 'results' --subjects 'results.>' --subjects 'commits.OUT.>' --force"},
	{name: "part of the subject", stream: jetstream.StreamConfig{Subjects: []string{"results.>", "commits.OUT.INGEST.a.>"}, AllowBatchPublish: true},
		found: "does not take commit markers", command: "nats stream edit OUT --subjects 'results.>' --subjects 'commits.OUT.>' --force"},
	{name: "as shared delivery provisions it, with three replicas", stream: jetstream.StreamConfig{Subjects: []string{"results.>"}, Replicas: 3, AllowBatchPublish: true},
		found: "does not take commit markers", command: "nats stream edit OUT --subjects 'results.>' --subjects 'commits.OUT.>' --allow-batch --force"},
	{name: "no batches", stream: jetstream.StreamConfig{Subjects: marked},
		found: "within the duplicate window: the stream allows no batches that end with a commit marker", command: "nats stream edit OUT --allow-fast --force"},
	{name: "no batches, three replicas", stream: jetstream.StreamConfig{Subjects: marked, Replicas: 3, AllowBatchPublish: true},
		found: "allows no batches", command: "nats stream edit OUT --allow-batch --force"},
	{name: "a work queue without atomic batches", stream: jetstream.StreamConfig{Subjects: marked, Retention: jetstream.WorkQueuePolicy, AllowBatchPublish: true},
		found: "allows no batches", command: "nats stream edit OUT --allow-batch --force"},
	{name: "interest", stream: jetstream.StreamConfig{Subjects: []string{"results.>"}, Retention: jetstream.InterestPolicy},
		found:   "with retention interest the server drops commit markers, for which there is no consumer",
		command: "nats stream edit OUT --retention limits --subjects 'results.>' --subjects 'commits.OUT.>' --allow-fast --force", advice: "keeps messages that are read"},
	{name: "a subject transform", stream: jetstream.StreamConfig{Subjects: marked, SubjectTransform: transform(">", "a.>"), AllowBatchPublish: true},
		found: `the stream maps subjects (">" to "a.>")`, advice: "without a subject transform"},
	{name: "few messages per subject", stream: jetstream.StreamConfig{Subjects: marked, MaxMsgsPerSubject: 5, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, AllowBatchPublish: true},
		found: "refuses commit markers of a partition after 5 of them", advice: "without discard_new_per_subject"},
	{name: "small messages", stream: jetstream.StreamConfig{Subjects: marked, MaxMsgSize: 64, AllowBatchPublish: true},
		found: "takes no message of the size of a commit marker (max_msg_size 64)", command: "nats stream edit OUT --max-msg-size 1024 --force"},
	{name: "an old server", stream: jetstream.StreamConfig{Subjects: marked}, version: "2.11.9",
		found: "server 2.11.9 has no atomic batches", advice: "upgrade it to 2.14 or later"},
	{name: "a server without fast batches", stream: jetstream.StreamConfig{Subjects: marked}, version: "2.12.0-RC.1",
		found: "allows no batches", command: "nats stream edit OUT --allow-batch --force"},
	{name: "off", stream: jetstream.StreamConfig{Subjects: marked, AllowBatchPublish: true}, change: func(l *Topology) { l.ExactlyOnce = Off },
		found: "within the duplicate window: MILLRACE_EXACTLY_ONCE is off"},
	{name: "shared delivery", stream: jetstream.StreamConfig{Subjects: marked, AllowBatchPublish: true}, change: func(l *Topology) { l.Exclusive = false },
		found: "within the duplicate window: delivery is shared"},
}

var letterCases = []commitsCase{
	{name: "atomic batches", stream: jetstream.StreamConfig{Subjects: marked, AllowAtomicPublish: true},
		way: AtomicCommits, found: "exactly once: dead letters are committed with a marker (atomic batches)"},
	{name: "a work queue", stream: jetstream.StreamConfig{Subjects: marked, Retention: jetstream.WorkQueuePolicy, AllowAtomicPublish: true},
		way: AtomicCommits, found: "need a filter such as deadletter.>"},
	{name: "fast batches alone", stream: jetstream.StreamConfig{Subjects: marked, AllowBatchPublish: true},
		found: "within the duplicate window: the stream allows no atomic batches", command: "nats stream edit OUT --allow-batch --force"},
	{name: "no subject", stream: jetstream.StreamConfig{Subjects: []string{"deadletter.>"}},
		found: "does not take commit markers (subject commits.OUT.>)", command: "nats stream edit OUT --subjects 'deadletter.>' --subjects 'commits.OUT.>' --allow-batch --force"},
	{name: "interest", stream: jetstream.StreamConfig{Subjects: marked, Retention: jetstream.InterestPolicy, AllowAtomicPublish: true},
		found: "with retention interest", command: "nats stream edit OUT --retention limits --force"},
	{name: "in the result stream", stream: jetstream.StreamConfig{Subjects: marked, AllowAtomicPublish: true}, change: func(l *Topology) { l.ResultStream = "OUT" },
		found: "within the duplicate window: the commit markers of this stream are those of the results", advice: "their own stream"},
	{name: "off", stream: jetstream.StreamConfig{Subjects: marked, AllowAtomicPublish: true}, change: func(l *Topology) { l.ExactlyOnce, l.ResultStream = Off, "OUT" },
		found: "MILLRACE_EXACTLY_ONCE is off"},
}

// check compares the case with the outcome of judge.
func (c commitsCase) check(t *testing.T, judge func(Topology) func(jetstream.StreamConfig, string) (Commits, string, string)) {
	t.Helper()
	l := Topology{Exclusive: true, CommitPrefix: "commits", ResultIDs: true, ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter"}
	if c.change != nil {
		c.change(&l)
	}
	if c.stream.Name = "OUT"; c.version == "" {
		c.version = server.VERSION
	}
	way, found, advice := judge(l)(c.stream, c.version)
	if way != c.way || !strings.Contains(found, c.found) {
		t.Errorf("commits are %d, %q; want %d, %q", way, found, c.way, c.found)
	}
	command := editCommand.FindString(advice)
	if command != c.command || !strings.Contains(advice, c.advice) || (advice == "") != (c.command == "" && c.advice == "") {
		t.Errorf("the advice is %q, want the command %q and %q", advice, c.command, c.advice)
	}
}

func TestCommitsOfStreams(t *testing.T) {
	t.Parallel()
	for _, c := range resultCases {
		t.Run("results, "+c.name, func(t *testing.T) {
			c.check(t, func(l Topology) func(jetstream.StreamConfig, string) (Commits, string, string) { return l.CommitsOf })
		})
	}
	for _, c := range letterCases {
		t.Run("dead letters, "+c.name, func(t *testing.T) {
			c.check(t, func(l Topology) func(jetstream.StreamConfig, string) (Commits, string, string) {
				return l.LetterCommitsOf
			})
		})
	}
}

// TestProvisionedStreamsTakeCommitMarkers shows that streams accept commit markers with exclusive delivery, unless
// MILLRACE_EXACTLY_ONCE is off.
func TestProvisionedStreamsTakeCommitMarkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		exclusive bool
		wants     ExactlyOnce
		marked    bool
	}{{"auto", true, Auto, true}, {"required", true, Required, true}, {"off", true, Off, false}, {"shared", false, Auto, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.topology.CommitPrefix = "commits"
			if c.exclusive {
				r.exclusive(2)
			}
			r.topology.ExactlyOnce = c.wants
			r.provision()
			for name, subject := range map[string]string{"RESULTS": "commits.RESULTS.>", "RESULTS_DEADLETTER": "commits.RESULTS_DEADLETTER.>"} {
				s := r.StreamConfig(name)
				if slices.Contains(s.Subjects, subject) != c.marked || s.AllowAtomicPublish != c.marked {
					t.Errorf("%s has the subjects %v, and atomic batches: %v", name, s.Subjects, s.AllowAtomicPublish)
				}
				if fast := name == "RESULTS"; s.AllowBatchPublish != fast {
					t.Errorf("%s has fast batches: %v, want %v", name, s.AllowBatchPublish, fast)
				}
			}
			for _, line := range r.found(10, roomy) {
				if !strings.HasPrefix(line, "ok ") {
					t.Error(line)
				}
			}
		})
	}
}

func TestServersThatAreTooOld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version       string
		level         int
		l             Topology
		found, advice string // empty means new enough
	}{
		{"2.10.0", 0, Topology{}, "", ""},
		{"2.9.25", 0, Topology{}, "version 2.9.25, and Millrace needs nats-server 2.10", "upgrade"},
		{"2.14.0", 0, Topology{Exclusive: true}, "", ""},
		{"2.13.1", 0, Topology{Exclusive: true}, "version 2.13.1, and exclusive delivery needs nats-server 2.14", "MILLRACE_DELIVERY=shared"},
		{"2.9.25", 0, Topology{Exclusive: true}, "Millrace needs nats-server 2.10", "upgrade"},
		// The leaf node's version does not imply the hub's version.
		{"2.9.25", 4, Topology{Exclusive: true, API: jsapi.API{Domain: "hub"}}, "", ""},
		{"2.9.25", 0, Topology{API: jsapi.API{Domain: "hub"}}, "", ""},
		{"2.15.2", 3, Topology{Exclusive: true, API: jsapi.API{Prefix: "from.afar"}}, "level 3 of its API, and exclusive delivery needs level 4, of nats-server 2.14", "MILLRACE_DELIVERY=shared"},
	} {
		found, advice := tooOld(c.version, c.level, c.l)
		if (found == "") != (c.found == "") || !strings.Contains(found, c.found) || !strings.Contains(advice, c.advice) {
			t.Errorf("%s, exclusive %v: %q, %q; want %q, %q", c.version, c.l.Exclusive, found, advice, c.found, c.advice)
		}
	}
}

// TestTheOldestReleaseIsNamed shows that startup and `worker check` name the oldest supported release.
func TestTheOldestReleaseIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if level, err := apiLevel(r.Ctx(), r.NC, jsapi.API{}); err != nil || level < levelExclusive {
		t.Errorf("the API has level %d (%v), want %d or more", level, err, levelExclusive)
	}
	wantLine(t, r.found(1000, roomy), "server", "(2.10 or later is needed)")
	r.exclusive(2)
	wantLine(t, r.found(1000, roomy), "server", "(2.14 or later is needed)")
}
