package topology

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

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
	stream  streamConfig // without a name
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
	{name: "one replica", stream: streamConfig{Subjects: marked, AllowBatchPublish: true, AllowAtomicPublish: true},
		way: FastCommits, found: "exactly once: each batch is committed with a marker (fast batches)"},
	{name: "a wildcard takes the markers", stream: streamConfig{Subjects: []string{"*.>"}, AllowBatchPublish: true},
		way: FastCommits, found: "exactly once: "},
	{name: "three replicas", stream: streamConfig{Subjects: marked, Replicas: 3, AllowBatchPublish: true, AllowAtomicPublish: true},
		way: AtomicCommits, found: "exactly once: each batch is committed with a marker (atomic batches)"},
	{name: "one replica, atomic batches alone", stream: streamConfig{Subjects: marked, AllowAtomicPublish: true}, way: AtomicCommits, found: "(atomic batches)"},
	{name: "a work queue", stream: streamConfig{Subjects: marked, Retention: jetstream.WorkQueuePolicy, AllowBatchPublish: true, AllowAtomicPublish: true},
		way: AtomicCommits, found: "(atomic batches); consumers of this work queue need a filter such as results.>"},
	{name: "no subject", stream: streamConfig{Subjects: []string{"results", "results.>"}, AllowBatchPublish: true},
		found:   "within the duplicate window: the stream does not take commit markers (subject commits.OUT.>)",
		command: "nats stream edit OUT --subjects 'results' --subjects 'results.>' --subjects 'commits.OUT.>' --force"},
	{name: "part of the subject", stream: streamConfig{Subjects: []string{"results.>", "commits.OUT.INGEST.a.>"}, AllowBatchPublish: true},
		found: "does not take commit markers", command: "nats stream edit OUT --subjects 'results.>' --subjects 'commits.OUT.>' --force"},
	{name: "as shared delivery provisions it, with three replicas", stream: streamConfig{Subjects: []string{"results.>"}, Replicas: 3, AllowBatchPublish: true},
		found: "does not take commit markers", command: "nats stream edit OUT --subjects 'results.>' --subjects 'commits.OUT.>' --allow-batch --force"},
	{name: "no batches", stream: streamConfig{Subjects: marked},
		found: "within the duplicate window: the stream allows no batches that end with a commit marker", command: "nats stream edit OUT --allow-fast --force"},
	{name: "no batches, three replicas", stream: streamConfig{Subjects: marked, Replicas: 3, AllowBatchPublish: true},
		found: "allows no batches", command: "nats stream edit OUT --allow-batch --force"},
	{name: "a work queue without atomic batches", stream: streamConfig{Subjects: marked, Retention: jetstream.WorkQueuePolicy, AllowBatchPublish: true},
		found: "allows no batches", command: "nats stream edit OUT --allow-batch --force"},
	{name: "interest", stream: streamConfig{Subjects: []string{"results.>"}, Retention: jetstream.InterestPolicy},
		found:   "with retention interest the server drops commit markers, for which there is no consumer",
		command: "nats stream edit OUT --retention limits --subjects 'results.>' --subjects 'commits.OUT.>' --allow-fast --force", advice: "keeps messages that are read"},
	{name: "a subject transform", stream: streamConfig{Subjects: marked, SubjectTransform: transform(">", "a.>"), AllowBatchPublish: true},
		found: `the stream maps subjects (">" to "a.>")`, advice: "without a subject transform"},
	{name: "few messages per subject", stream: streamConfig{Subjects: marked, MaxMsgsPerSubject: 5, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, AllowBatchPublish: true},
		found: "refuses commit markers of a partition after 5 of them", advice: "without discard_new_per_subject"},
	{name: "small messages", stream: streamConfig{Subjects: marked, MaxMsgSize: 64, AllowBatchPublish: true},
		found: "takes no message of the size of a commit marker (max_msg_size 64)", command: "nats stream edit OUT --max-msg-size 1024 --force"},
	{name: "an old server", stream: streamConfig{Subjects: marked}, version: "2.11.9",
		found: "server 2.11.9 has no atomic batches", advice: "upgrade it to 2.14 or later"},
	{name: "a server without fast batches", stream: streamConfig{Subjects: marked}, version: "2.12.0-RC.1",
		found: "allows no batches", command: "nats stream edit OUT --allow-batch --force"},
	{name: "off", stream: streamConfig{Subjects: marked, AllowBatchPublish: true}, change: func(l *Topology) { l.ExactlyOnce = Off },
		found: "within the duplicate window: MILLRACE_EXACTLY_ONCE is off"},
	{name: "shared delivery", stream: streamConfig{Subjects: marked, AllowBatchPublish: true}, change: func(l *Topology) { l.Exclusive = false },
		found: "within the duplicate window: delivery is shared"},
}

var letterCases = []commitsCase{
	{name: "atomic batches", stream: streamConfig{Subjects: marked, AllowAtomicPublish: true},
		way: AtomicCommits, found: "exactly once: dead letters are committed with a marker (atomic batches)"},
	{name: "a work queue", stream: streamConfig{Subjects: marked, Retention: jetstream.WorkQueuePolicy, AllowAtomicPublish: true},
		way: AtomicCommits, found: "need a filter such as deadletter.>"},
	{name: "fast batches alone", stream: streamConfig{Subjects: marked, AllowBatchPublish: true},
		found: "within the duplicate window: the stream allows no batches that end with a commit marker", command: "nats stream edit OUT --allow-batch --force"},
	{name: "no subject", stream: streamConfig{Subjects: []string{"deadletter.>"}},
		found: "does not take commit markers (subject commits.OUT.>)", command: "nats stream edit OUT --subjects 'deadletter.>' --subjects 'commits.OUT.>' --allow-batch --force"},
	{name: "interest", stream: streamConfig{Subjects: marked, Retention: jetstream.InterestPolicy, AllowAtomicPublish: true},
		found: "with retention interest", command: "nats stream edit OUT --retention limits --force"},
	{name: "in the result stream", stream: streamConfig{Subjects: marked, AllowAtomicPublish: true}, change: func(l *Topology) { l.ResultStream = "OUT" },
		found: "within the duplicate window: the commit markers of this stream are those of the results", advice: "their own stream"},
	{name: "off", stream: streamConfig{Subjects: marked, AllowAtomicPublish: true}, change: func(l *Topology) { l.ExactlyOnce, l.ResultStream = Off, "OUT" },
		found: "MILLRACE_EXACTLY_ONCE is off"},
}

func TestCommitsOfStreams(t *testing.T) {
	t.Parallel()
	for what, cases := range map[string][]commitsCase{"results": resultCases, "dead letters": letterCases} {
		for _, c := range cases {
			l := Topology{Exclusive: true, CommitPrefix: "commits", ResultIDs: true, ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter"}
			if c.change != nil {
				c.change(&l)
			}
			if c.stream.Name = "OUT"; c.version == "" {
				c.version = server.VERSION
			}
			judge := l.CommitsOf
			if what == "dead letters" {
				judge = l.LetterCommitsOf
			}
			way, found, advice := judge(c.stream, c.version)
			if way != c.way || !strings.Contains(found, c.found) {
				t.Errorf("%s, %s: commits are %d, %q; want %d, %q", what, c.name, way, found, c.way, c.found)
			}
			command := editCommand.FindString(advice)
			if command != c.command || !strings.Contains(advice, c.advice) || (advice == "") != (c.command == "" && c.advice == "") {
				t.Errorf("%s, %s: the advice is %q, want the command %q and %q", what, c.name, advice, c.command, c.advice)
			}
		}
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
			for _, line := range r.found() {
				if !strings.HasPrefix(line, "ok ") {
					t.Error(line)
				}
			}
		})
	}
}

// TestAdviceForCommitMarkersWorks shows that both streams accept commit markers after the advised commands.
func TestAdviceForCommitMarkersWorks(t *testing.T) {
	t.Parallel()
	fast, atomic := "fast batches", "atomic batches"
	for name, c := range map[string]struct {
		results, letters streamConfig
		way              string // way for results
	}{
		"as they were provisioned": {streamConfig{AllowBatchPublish: true}, streamConfig{}, fast},
		"no batches":               {streamConfig{}, streamConfig{AllowAtomicPublish: true}, fast},
		"interest":                 {streamConfig{Retention: jetstream.InterestPolicy}, streamConfig{Retention: jetstream.InterestPolicy}, fast},
		"work queues":              {streamConfig{Retention: jetstream.WorkQueuePolicy}, streamConfig{Retention: jetstream.WorkQueuePolicy}, atomic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.exclusive(2)
			r.topology.ExactlyOnce = Off
			r.add("RESULTS", "results,results.>", c.results)
			r.add("DEAD", "deadletter.>", c.letters)
			r.provision()
			r.topology.ExactlyOnce = Auto
			r.follow("have the stream take commit markers")
			lines := r.found()
			wantLine(t, lines, "ok stream RESULTS: exactly once", c.way)
			wantLine(t, lines, "ok dead letters deadletter.>: exactly once", atomic)
			r.follow("have each marker replace the one before")
			for _, line := range r.found() {
				if strings.Contains(line, "every commit marker") {
					t.Error(line)
				}
			}
		})
	}
}

// follow runs the commands of the advice that starts with begins.
func (r *rig) follow(begins string) {
	r.Helper()
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, r.use) {
		if strings.HasPrefix(f.Advice, begins) {
			r.perform(editCommand.FindString(f.Advice))
		}
	}
}
