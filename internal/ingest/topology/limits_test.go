package topology

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// boundsCase has a stream, the settings for new streams, and the expected warning or error.
type boundsCase struct {
	name    string
	stream  streamConfig
	change  func(*Topology)
	want    []string // parts of the warning; empty means no warning
	command string   // command in the warning; empty means none
}

var boundsCases = []boundsCase{
	{name: "no batches", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxMsgs: 1 << 40, Discard: jetstream.DiscardNew},
		want: []string{"warning stream RESULTS: one publish a result", "set allow_batched"}, command: "nats stream edit RESULTS --allow-fast"},
	{name: "no acknowledgements", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, NoAck: true},
		want: []string{"error stream RESULTS: has no_ack set", "clear no_ack"}, command: "nats stream edit RESULTS --ack"},
	{name: "an input stream without a bound", stream: streamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}},
		want:    []string{"warning stream INGEST: has no bound: it keeps every message", "processed inputs stay in it and count", "changes no stream that exists"},
		command: "nats stream edit INGEST --max-bytes 4GiB --discard new"},
	{name: "a work queue without a bound", stream: streamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}, Retention: jetstream.WorkQueuePolicy},
		want: []string{"while no worker runs, its backlog can fill the disk"}, command: "nats stream edit INGEST --max-bytes 4GiB --discard new"},
	{name: "a result stream without a bound", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}},
		want:    []string{"warning stream RESULTS: has no bound", "a stream that is full refuses messages", "deletes at once what is older than 168h, read or not"},
		command: "nats stream edit RESULTS --max-age 604800s --max-bytes 4GiB --discard new"},
	{name: "an age below the duplicate window", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}},
		change: func(l *Topology) { l.Kept.Results = NewBounds(time.Minute, 0) }, want: []string{"warning stream RESULTS: has no bound"},
		command: "nats stream edit RESULTS --max-age 60s --dupe-window 60s --max-bytes 4GiB --discard new"},
	{name: "dead letters without a bound", stream: streamConfig{Name: "DEAD", Subjects: []string{"deadletter.>"}},
		want: []string{"warning dead letters deadletter.>: has no bound"}, command: "nats stream edit DEAD --max-bytes 1GiB --discard new"},
	{name: "another bound, by somebody else", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxMsgs: 1 << 40, Discard: jetstream.DiscardNew}},
	{name: "the age that is set", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxAge: 168 * time.Hour}},
	{name: "created with another default", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxBytes: 1 << 30, MaxAge: time.Hour, Discard: jetstream.DiscardNew}, want: []string{"drops messages that nobody has read: max_age 1h0m0s"}, command: "nats stream edit RESULTS --max-age=0s"},
	{name: "asked for less", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxBytes: 8 << 30, MaxAge: 168 * time.Hour, Discard: jetstream.DiscardNew,
		Duplicates: 2 * time.Hour},
		change: func(l *Topology) {
			l.Kept.Results = NewBounds(time.Hour, 1<<30)
			l.Kept.Results.AskedAge, l.Kept.Results.AskedBytes = true, true
		},
		want:    []string{"max_age 168h, and MILLRACE_RESULT_MAX_AGE is 1h", "max_bytes 8GiB, and MILLRACE_RESULT_MAX_BYTES is 1GiB"},
		command: "nats stream edit RESULTS --max-bytes 1GiB --discard new --max-age 3600s --dupe-window 3600s"},
	{name: "asked for no limits", stream: streamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxBytes: 8 << 30, MaxAge: 168 * time.Hour, Discard: jetstream.DiscardNew},
		change: func(l *Topology) { l.Kept.Results = Bounds{AskedAge: true, AskedBytes: true} },
		want:   []string{"MILLRACE_RESULT_MAX_AGE is none", "MILLRACE_RESULT_MAX_BYTES is none"}, command: "nats stream edit RESULTS --max-bytes=-1 --max-age 0s"},
	{name: "asked for memory", stream: streamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}, MaxBytes: 1 << 30,
		Discard: jetstream.DiscardNew, Retention: jetstream.WorkQueuePolicy},
		change: func(l *Topology) { l.Kept.AskedStorage, l.Storage = true, jetstream.MemoryStorage },
		want:   []string{"File storage, and MILLRACE_PROVISION_STORAGE asks for Memory", "the server can't change the storage"}},
}

var editCommand = regexp.MustCompile(`nats stream edit [^);]*`)

// TestInspectWarnsOfStreamsWithoutABoundAndOfDifferences also shows that a warning is gone after its command.
func TestInspectWarnsOfStreamsWithoutABoundAndOfDifferences(t *testing.T) {
	t.Parallel()
	for _, c := range boundsCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if c.change != nil {
				c.change(&r.topology)
			}
			c.stream.AllowBatchPublish = c.name != "no batches"
			r.Create(c.stream)
			before, lines := r.StreamConfig(c.stream.Name), r.about(c.stream.Name)
			if len(c.want) > 0 {
				wantLine(t, lines, c.want...)
			} else if len(lines) > 0 {
				t.Errorf("warnings:\n%s", strings.Join(lines, "\n"))
			}
			if got := editCommand.FindString(strings.Join(lines, "\n")); got != c.command {
				t.Errorf("the command is %q, want %q", got, c.command)
			}
			if !sameStream(r.StreamConfig(c.stream.Name), before) {
				t.Error("the stream has changed")
			}
			if c.command == "" || c.name == "asked for no limits" { // the command leaves the stream without a bound
				return
			}
			r.perform(c.command + " --force")
			for _, line := range r.found() {
				if strings.Contains(line, c.command) {
					t.Errorf("after the command: %s", line)
				}
			}
		})
	}
}

// about returns the warnings and errors about a stream's settings.
func (r *rig) about(stream string) []string {
	return slices.DeleteFunc(r.found(), func(line string) bool {
		about := strings.Contains(line, "stream "+stream+": ") || stream == "DEAD" && strings.Contains(line, "dead letters")
		return strings.HasPrefix(line, "ok") || !about || strings.Contains(line, "duplicate window")
	})
}

// TestStreamsThatAreNearlyFull shows that the warning precedes any wait of publishers or the worker. A stream that deletes its oldest
// messages causes no warning, because it stays full.
func TestStreamsThatAreNearlyFull(t *testing.T) {
	t.Parallel()
	results, letters := Topology{}.resultPlan(server.VERSION), Topology{}.deadLetterPlan(server.VERSION)
	for _, c := range []struct {
		name   string
		plan   plan
		stream streamConfig
		holds  uint64
		want   string // empty means no warning
	}{
		{"discard new", results, streamConfig{MaxBytes: 1000, Discard: jetstream.DiscardNew}, 800,
			"holds 80% of max_bytes 1000; when it is full, the worker waits"},
		{"dead letters", letters, streamConfig{MaxBytes: 1000, Discard: jetstream.DiscardNew}, 1000,
			"holds 100% of max_bytes 1000; when it is full, payloads that are given up are delivered again, and with exclusive delivery partitions wait"},
		{"discard new, with room", results, streamConfig{MaxBytes: 1000, Discard: jetstream.DiscardNew}, 799, ""},
		{"discard new, no limit", results, streamConfig{MaxBytes: -1, Discard: jetstream.DiscardNew}, 1000, ""},
		{"discard old", results, streamConfig{MaxBytes: 1000}, 1000, ""},
	} {
		c.stream.Name, c.stream.MaxMsgs = "S", 1<<40 // a bound
		found := inspected(c.plan, c.stream, c.holds, (*stream).limits)
		if text := fmt.Sprint(found); (c.want == "") != (len(found) == 0) ||
			c.want != "" && (!strings.Contains(text, c.want) || !strings.Contains(text, "(nats stream edit S --max-bytes 1GiB --discard new)")) {
			t.Errorf("%s, %d bytes: %s, want %q", c.name, c.holds, text, c.want)
		}
	}
}

// TestASmallerLimitThanAStreamHolds shows that the advice warns of a limit below the stream's size, because the
// stream would refuse messages.
func TestASmallerLimitThanAStreamHolds(t *testing.T) {
	t.Parallel()
	const limit = 1 << 30
	p := Topology{Kept: Kept{Results: Bounds{MaxBytes: limit, AskedBytes: true}}}.resultPlan(server.VERSION)
	for holds, stops := range map[uint64]bool{0: false, limit: false, limit + 1: true} {
		found := inspected(p, streamConfig{MaxBytes: 8 * limit}, holds, (*stream).limits)
		if got := strings.Contains(found[0].Advice, fmt.Sprintf("it holds %d bytes, and refuses messages", holds)); got != stops {
			t.Errorf("for a stream with %d bytes: %v; want a warning that it refuses messages: %v", holds, found, stops)
		}
	}
}

// TestRoomIsMoreThanAStreamHolds shows that an advised limit exceeds the stream's size, so it doesn't stop the
// stream.
func TestRoomIsMoreThanAStreamHolds(t *testing.T) {
	t.Parallel()
	for holds, want := range map[int64]int64{0: 4 << 30, 1 << 30: 4 << 30, 3 << 30: 6 << 30, 5<<30 + 1: 11 << 30} {
		if got := room(holds, 4<<30); got != want {
			t.Errorf("for %d bytes: %d, want %d", holds, got, want)
		}
	}
}

// TestLimitsThatDropUnreadMessages also compares the warnings with the server. Each stream gets more messages than its limits allow.
// It must keep all confirmed messages, or Inspect must warn about it.
func TestLimitsThatDropUnreadMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const keep, messages, subject = "(nats stream edit S --discard new)", "(nats stream edit S --max-msgs=-1)", "(nats stream edit S --max-msgs-per-subject=-1)"
	for i, c := range []struct {
		name   string
		limits streamConfig
		want   []string // parts of the warning; empty means no warning
	}{
		{"no limits", streamConfig{}, nil},
		{"messages", streamConfig{MaxMsgs: 5}, []string{"max_msgs 5, discard old", messages, keep}},
		{"messages of a queue", streamConfig{MaxMsgs: 5, Retention: jetstream.WorkQueuePolicy}, []string{"max_msgs 5, discard old", messages, keep}},
		{"bytes", streamConfig{MaxBytes: 500}, []string{"max_bytes 500, discard old", "(nats stream edit S --max-bytes=-1)", keep}},
		{"messages, the newest refused", streamConfig{MaxMsgs: 5, MaxBytes: 500, Discard: jetstream.DiscardNew}, nil},
		{"age", streamConfig{MaxAge: time.Hour}, []string{"max_age 1h0m0s, discard old", "(nats stream edit S --max-age=0s)"}},
		{"age, the newest refused", streamConfig{MaxAge: time.Hour, Discard: jetstream.DiscardNew}, []string{"max_age 1h0m0s, discard new"}},
		{"of a subject", streamConfig{MaxMsgsPerSubject: 5}, []string{"max_msgs_per_subject 5, discard old", subject}},
		{"of a subject, the newest refused for the stream alone", streamConfig{MaxMsgsPerSubject: 5, Discard: jetstream.DiscardNew},
			[]string{"max_msgs_per_subject 5, discard new", subject}},
		{"of a subject, the newest refused",
			streamConfig{MaxMsgsPerSubject: 5, MaxMsgs: 10, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true}, nil},
		{"all", streamConfig{MaxMsgs: 5, MaxBytes: 7000, MaxAge: time.Minute, MaxMsgsPerSubject: 3, Retention: jetstream.WorkQueuePolicy},
			[]string{"max_msgs 5, max_bytes 7000, max_msgs_per_subject 3, max_age 1m0s, discard old",
				"(nats stream edit S --max-msgs=-1 --max-bytes=-1 --max-msgs-per-subject=-1 --max-age=0s)"}},
	} {
		c.limits.Name = "S"
		found := inspected(Topology{}.resultPlan(server.VERSION), c.limits, 0, (*stream).deletions)
		text := fmt.Sprint(found)
		for _, part := range append(c.want, strings.Repeat("drops messages that nobody has read", len(found))) {
			if !strings.Contains(text, part) || len(found) != min(len(c.want), 1) {
				t.Errorf("%s: %s; want %q", c.name, text, c.want)
			}
		}
		name := fmt.Sprint("S-", i)
		c.limits.Name, c.limits.Subjects = name, []string{name}
		r.Create(c.limits)
		confirmed := uint64(0)
		for range 20 {
			if _, err := r.JS.Publish(r.Ctx(), name, make([]byte, 50)); err == nil {
				confirmed++
			}
		}
		held := r.Stream(name).CachedInfo().State.Msgs
		if dropped := held < confirmed; c.limits.MaxAge == 0 && dropped != (len(found) > 0) || confirmed < 5 {
			t.Errorf("%s: the server confirmed %d messages and holds %d; the warnings are %s", c.name, confirmed, held, text)
		}
	}
}
