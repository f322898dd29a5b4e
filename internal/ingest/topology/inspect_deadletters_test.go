package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
