package topology

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

func TestInspectSaysHowToMoveDeadLetters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		subjects []string
		want     string
	}{
		{"everything, with commit markers", []string{"*.>"},
			"nats stream edit RESULTS --subjects 'commits.RESULTS.>' --subjects 'results' --subjects 'results.>' --force, then"},
		{"as it was provisioned", []string{"results", "results.>", "deadletter", "deadletter.>"},
			"nats stream edit RESULTS --subjects 'results' --subjects 'results.>' --force, then nats stream add RESULTS_DEADLETTER " +
				"--subjects 'deadletter' --subjects 'deadletter.>' --retention limits --max-bytes 1GiB --discard new --dupe-window 120s --no-allow-direct --defaults"},
		{"with more", []string{"results.>", "deadletter.>", "other.>"}, "nats stream edit RESULTS --subjects 'results.>' --subjects 'other.>' --force, then"},
		{"everything", []string{"*.>"}, "nats stream edit RESULTS --subjects 'results' --subjects 'results.>' --force, then"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			settings := jetstream.StreamConfig{Name: "RESULTS", Subjects: c.subjects, Storage: jetstream.MemoryStorage}
			if strings.HasSuffix(c.name, "commit markers") {
				r.exclusive(2)
			}
			if strings.HasPrefix(c.name, "everything") {
				settings.NoAck = true // required for subjects that include the server's API
			}
			r.Create(settings)
			wantLine(t, r.found(1000, roomy), "warning dead letters deadletter.>", "stored in the result stream RESULTS", c.want)
		})
	}
}

// TestMarkersAreNoDeadLetters shows that commit markers are reported separately. They count as messages of the stream
// in the output of nats.
func TestMarkersAreNoDeadLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(2)
	r.provision()
	if lines := strings.Join(r.found(10, roomy), "\n"); strings.Contains(lines, "which are no dead letters") {
		t.Errorf("of a stream without messages:\n%s", lines)
	}
	subjects := []string{"commits.RESULTS_DEADLETTER.INGEST.millrace.0", "commits.RESULTS_DEADLETTER.INGEST.millrace.1", "deadletter.web", "commits.RESULTS_DEADLETTER.INGEST.millrace.0"}
	r.Publish(0, len(subjects), func(i int) *nats.Msg { return &nats.Msg{Subject: subjects[i]} })
	wantLine(t, r.found(10, roomy), "ok dead letters deadletter.>: 3 of its 4 messages are commit markers, which are no dead letters; stored in stream RESULTS_DEADLETTER")
}

// TestMovedDeadLettersHaveTheBoundsOfASetting shows that the advised commands work. They create a stream with the
// worker's default settings and the duplicate window of the results. No warning is left.
func TestMovedDeadLettersHaveTheBoundsOfASetting(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]Bounds{
		"the defaults": defaults().DeadLetters, "an age": NewBounds(48*time.Hour, 3<<30), "a short age": NewBounds(time.Minute, 0), "no bounds": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, provisioned := newRig(t), newRig(t)
			for _, each := range []*rig{r, provisioned} {
				each.topology.Kept.DeadLetters = bounds
			}
			provisioned.provision()
			r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results", "results.>", "deadletter", "deadletter.>"}, Duplicates: 5 * time.Minute})
			edit, add, found := strings.Cut(r.adviceOn("dead letters deadletter.>"), ", then ")
			if !found {
				t.Fatalf("the advice is %q", edit)
			}
			_, edit, _ = strings.Cut(edit, ": ")
			add, _, _ = strings.Cut(add, ". Dead letters")
			for _, command := range []string{edit, add} {
				for _, words := range shellWords(t, command) {
					r.perform(words)
				}
			}
			got, want := r.StreamConfig("RESULTS_DEADLETTER"), provisioned.StreamConfig("RESULTS_DEADLETTER")
			if got.MaxBytes != want.MaxBytes || got.MaxAge != want.MaxAge || got.Discard != want.Discard || got.Storage != want.Storage || got.Retention != want.Retention {
				t.Errorf("the command creates\n%+v, want the bounds of\n%+v", got, want)
			}
			window := 5 * time.Minute
			if bounds.MaxAge > 0 {
				window = min(window, bounds.MaxAge)
			}
			if got.Duplicates != window {
				t.Errorf("the duplicate window is %v, want %v", got.Duplicates, window)
			}
			for _, line := range r.found(1000, roomy) {
				if strings.Contains(line, "deadletter.>") && strings.HasPrefix(line, "warning") && bounds != (Bounds{}) {
					t.Errorf("after the commands: %s", line)
				}
			}
			wantLine(t, r.found(1000, roomy), "ok dead letters deadletter.>", "stored in stream RESULTS_DEADLETTER")
		})
	}
}

func (r *rig) adviceOn(what string) string {
	r.Helper()
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, Use{InFlight: 10, BatchBytes: roomy, Linger: time.Millisecond}) {
		if f.What == what {
			return f.Advice
		}
	}
	r.Fatalf("no finding about %s", what)
	return ""
}

func TestInspectOfExactlyOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(2)
	r.provision()
	lines := r.found(10, roomy)
	wantLine(t, lines, "ok stream RESULTS: exactly once: each batch is committed with a marker (fast batches)")
	wantLine(t, lines, "ok dead letters deadletter.>: exactly once: dead letters are committed with a marker (atomic batches)")
	for _, line := range lines {
		if strings.Contains(line, "duplicate window") || strings.Contains(line, "one commit a batch") {
			t.Errorf("with commit markers: %s", line)
		}
	}
	r.topology.ExactlyOnce = Off
	lines = r.found(10, roomy)
	wantLine(t, lines, "ok stream RESULTS: one commit a batch")
	wantLine(t, lines, "ok stream RESULTS: duplicate window")
	if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "exactly once") }) {
		t.Errorf("exactly once is off:\n%s", strings.Join(lines, "\n"))
	}
}

// olderStreams creates streams of results and dead letters that accept no commit markers.
func (r *rig) olderStreams(results, letters jetstream.StreamConfig) {
	r.Helper()
	r.topology.ExactlyOnce = Off
	results.Name, results.Subjects = "RESULTS", []string{"results", "results.>"}
	letters.Name, letters.Subjects = "DEAD", []string{"deadletter.>"}
	r.Create(results)
	r.Create(letters)
	r.provision()
	r.topology.ExactlyOnce = Auto
}

// TestRequiredExactlyOnceIsAnError shows that streams without commit markers are an error if exactly once is
// required, and otherwise a warning.
func TestRequiredExactlyOnceIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(2)
	r.olderStreams(jetstream.StreamConfig{AllowBatchPublish: true}, jetstream.StreamConfig{})
	for wanted, parts := range map[ExactlyOnce][]string{
		Auto:     {"warning ", "or set MILLRACE_EXACTLY_ONCE=off"},
		Required: {"error ", "or set MILLRACE_EXACTLY_ONCE=auto"},
	} {
		r.topology.ExactlyOnce = wanted
		lines := r.found(10, roomy)
		wantLine(t, lines, append(parts, "stream RESULTS: within the duplicate window: the stream does not take commit markers (subject commits.RESULTS.>)")...)
		wantLine(t, lines, append(parts, "dead letters deadletter.>: within the duplicate window: the stream does not take commit markers (subject commits.DEAD.>)")...)
		wantLine(t, lines, "ok stream RESULTS: one commit a batch")
		wantLine(t, lines, "ok stream RESULTS: duplicate window")
	}
	r.topology.ExactlyOnce, r.topology.ResultIDs = Required, false // the order of the map is random
	wantLine(t, r.found(10, roomy), "error stream RESULTS", "MILLRACE_RESULT_IDS=false has no effect, and results have their ids")
}

// TestAdviceForCommitMarkersWorks shows that both streams accept commit markers after the advised commands.
func TestAdviceForCommitMarkersWorks(t *testing.T) {
	t.Parallel()
	fast, atomic := "fast batches", "atomic batches"
	for name, c := range map[string]struct {
		results, letters jetstream.StreamConfig
		way              string // way for results
	}{
		"as they were provisioned": {jetstream.StreamConfig{AllowBatchPublish: true}, jetstream.StreamConfig{}, fast},
		"no batches":               {jetstream.StreamConfig{}, jetstream.StreamConfig{AllowAtomicPublish: true}, fast},
		"interest":                 {jetstream.StreamConfig{Retention: jetstream.InterestPolicy}, jetstream.StreamConfig{Retention: jetstream.InterestPolicy}, fast},
		"work queues":              {jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, atomic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.exclusive(2)
			r.olderStreams(c.results, c.letters)
			r.follow("have the stream take commit markers")
			lines := r.found(10, roomy)
			wantLine(t, lines, "ok stream RESULTS: exactly once", c.way)
			wantLine(t, lines, "ok dead letters deadletter.>: exactly once", atomic)
			r.follow("have each marker replace the one before")
			for _, line := range r.found(10, roomy) {
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
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, Use{InFlight: 10, BatchBytes: roomy}) {
		if !strings.HasPrefix(f.Advice, begins) {
			continue
		}
		for _, words := range shellWords(r.TB, editCommand.FindString(f.Advice)) {
			r.perform(words)
		}
	}
}

// TestInspectOfAWorkQueueWithCommitMarkers shows that markers in a work queue must replace each other, because no
// reader removes them.
func TestInspectOfAWorkQueueWithCommitMarkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(2)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "commits.RESULTS.>"}, Retention: jetstream.WorkQueuePolicy, AllowAtomicPublish: true})
	lines := r.found(10, roomy)
	wantLine(t, lines, "ok stream RESULTS: exactly once", "need a filter such as results.>")
	wantLine(t, lines, "warning stream RESULTS: keeps every commit marker", "(nats stream edit RESULTS --allow-rollup)")
}

// TestInspectNamesTheRightToReadMarkers shows that a missing permission is reported. A worker must read the last
// marker when it takes over a partition.
func TestInspectNamesTheRightToReadMarkers(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{{Username: "admin", Password: "admin"}, {Username: "worker", Password: "worker", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.RESULTS"}}}}}, "admin"
	})
	r.exclusive(2)
	r.provision()
	level := finding.OK
	for _, f := range Inspect(r.Ctx(), r.Connect(r.URL, nats.UserInfo("worker", "worker")), r.topology, Use{InFlight: 10, BatchBytes: roomy}) {
		if strings.Contains(f.Found, "read the last commit marker") && strings.Contains(f.Advice, "$JS.API.STREAM.MSG.GET.RESULTS and on commits.RESULTS.>") {
			level = f.Level
		}
	}
	if level != finding.Error {
		t.Error("the missing right is not reported as an error")
	}
}
