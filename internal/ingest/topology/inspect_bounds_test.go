package topology

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// boundsCase has a stream, the settings for new streams, and the expected warning.
type boundsCase struct {
	name    string
	stream  jetstream.StreamConfig
	change  func(*Kept)
	want    []string // parts of the warning; empty means no warning
	command string   // command in the warning; empty means none
}

// ours is the description of streams that Millrace created.
const ours = provisioned

var boundsCases = []boundsCase{
	{name: "an input stream without a bound", stream: jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}},
		want:    []string{"warning stream INGEST: has no bound: it keeps every message", "processed inputs stay in it and count", "changes no stream that exists"},
		command: "nats stream edit INGEST --max-bytes 4GiB --discard new"},
	{name: "a work queue without a bound", stream: jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}, Retention: jetstream.WorkQueuePolicy},
		want: []string{"while no worker runs, its backlog can fill the disk"}, command: "nats stream edit INGEST --max-bytes 4GiB --discard new"},
	{name: "a result stream without a bound", stream: jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}},
		want:    []string{"warning stream RESULTS: has no bound", "a stream that is full refuses messages", "deletes at once what is older than 168h, read or not"},
		command: "nats stream edit RESULTS --max-age 604800s --max-bytes 4GiB --discard new"},
	{name: "an age below the duplicate window", stream: jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}},
		change: func(k *Kept) { k.Results = NewBounds(time.Minute, 0) }, want: []string{"warning stream RESULTS: has no bound"},
		command: "nats stream edit RESULTS --max-age 60s --dupe-window 60s --max-bytes 4GiB --discard new"},
	{name: "dead letters without a bound", stream: jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"deadletter.>"}},
		want: []string{"warning dead letters deadletter.>: has no bound"}, command: "nats stream edit DEAD --max-bytes 1GiB --discard new"},
	{name: "another bound, by somebody else", stream: jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxMsgs: 1 << 40, Discard: jetstream.DiscardNew}},
	{name: "the age that is set", stream: jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxAge: 168 * time.Hour}},
	{name: "created with another default", stream: jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, Description: ours,
		MaxBytes: 1 << 30, MaxAge: time.Hour, Discard: jetstream.DiscardNew}, want: []string{"drops messages that nobody has read: max_age 1h0m0s"}, command: "nats stream edit RESULTS --max-age=0s"},
	{name: "asked for less", stream: jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxBytes: 8 << 30, MaxAge: 168 * time.Hour, Discard: jetstream.DiscardNew,
		Duplicates: 2 * time.Hour},
		change: func(k *Kept) {
			k.Results = NewBounds(time.Hour, 1<<30)
			k.Results.AskedAge, k.Results.AskedBytes = true, true
		},
		want:    []string{"max_age 168h, and MILLRACE_RESULT_MAX_AGE is 1h", "max_bytes 8GiB, and MILLRACE_RESULT_MAX_BYTES is 1GiB"},
		command: "nats stream edit RESULTS --max-age 3600s --dupe-window 3600s --max-bytes 1GiB --discard new"},
	{name: "asked for no limits", stream: jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxBytes: 8 << 30, MaxAge: 168 * time.Hour, Discard: jetstream.DiscardNew},
		change: func(k *Kept) { k.Results = Bounds{AskedAge: true, AskedBytes: true} },
		want:   []string{"MILLRACE_RESULT_MAX_AGE is none", "MILLRACE_RESULT_MAX_BYTES is none"}, command: "nats stream edit RESULTS --max-age 0s --max-bytes=-1"},
	{name: "asked for memory", stream: jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}, MaxBytes: 1 << 30,
		Discard: jetstream.DiscardNew, Retention: jetstream.WorkQueuePolicy},
		change: func(k *Kept) { k.AskedStorage = true },
		want:   []string{"File storage, and MILLRACE_PROVISION_STORAGE asks for Memory", "the server can't change the storage"}},
}

var editCommand = regexp.MustCompile(`nats stream edit [^)]*`)

func TestInspectWarnsOfStreamsWithoutABoundAndOfDifferences(t *testing.T) {
	t.Parallel()
	for _, c := range boundsCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if c.change != nil {
				c.change(&r.topology.Kept)
				if r.topology.Kept.AskedStorage {
					r.topology.Storage = jetstream.MemoryStorage
				}
			}
			before := r.make(c.stream)
			lines := r.about(c.stream.Name)
			if len(c.want) == 0 {
				if len(lines) > 0 {
					t.Errorf("warnings:\n%s", strings.Join(lines, "\n"))
				}
				return
			}
			wantLine(t, lines, c.want...)
			if got := editCommand.FindString(strings.Join(lines, "\n")); got != c.command {
				t.Errorf("the command is %q, want %q", got, c.command)
			}
			if !sameStream(r.StreamConfig(c.stream.Name), before) {
				t.Error("the stream has changed")
			}
		})
	}
}

func (r *rig) make(c jetstream.StreamConfig) jetstream.StreamConfig {
	r.Helper()
	r.Create(c)
	return r.StreamConfig(c.Name)
}

// about returns the warnings about a stream's bounds and differences.
func (r *rig) about(stream string) []string {
	return slices.DeleteFunc(r.found(1000, roomy), func(line string) bool {
		about := strings.Contains(line, "stream "+stream+": ") || stream == "DEAD" && strings.Contains(line, "dead letters")
		return !strings.HasPrefix(line, "warning") || !about || strings.Contains(line, "one publish a result") || strings.Contains(line, "duplicate window")
	})
}

// TestInspectWarnsOfAStreamThatIsNearlyFull shows that the warning precedes any wait of publishers or the worker.
func TestInspectWarnsOfAStreamThatIsNearlyFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxBytes: 1 << 20, Discard: jetstream.DiscardNew})
	payload := make([]byte, 100<<10)
	for i := range 10 {
		if _, err := r.JS.Publish(r.Ctx(), "results.a", payload); err != nil {
			t.Fatal(err)
		}
		lines := strings.Join(r.about("RESULTS"), "\n")
		if i < 7 && lines != "" {
			t.Errorf("with %d of 10 parts: %s", i+1, lines)
		}
		if i == 8 {
			wantLine(t, r.about("RESULTS"), "holds 87% of max_bytes 1MiB; when it is full, the worker waits", "nats stream edit RESULTS --max-bytes 1GiB --discard new")
		}
	}
}

// inspected returns the findings of a check of a stream that holds the given number of bytes.
func inspected(p plan, have jetstream.StreamConfig, bytes uint64, check func(*stream)) []finding.Finding {
	s := &stream{inspection: &inspection{}, plan: p, what: "stream S", have: have, state: jetstream.StreamState{Bytes: bytes}}
	check(s)
	return s.findings
}

// TestOnlyAStreamThatRefusesMessagesIsNearlyFull shows that a stream that deletes its oldest messages causes no
// warning, because it stays full.
func TestOnlyAStreamThatRefusesMessagesIsNearlyFull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		stream jetstream.StreamConfig
		holds  uint64
		warned bool
	}{
		{"discard new", jetstream.StreamConfig{MaxBytes: 1000, Discard: jetstream.DiscardNew}, 800, true},
		{"discard new, with room", jetstream.StreamConfig{MaxBytes: 1000, Discard: jetstream.DiscardNew}, 799, false},
		{"discard new, no limit", jetstream.StreamConfig{MaxBytes: -1, Discard: jetstream.DiscardNew}, 1000, false},
		{"discard old", jetstream.StreamConfig{MaxBytes: 1000}, 1000, false},
	} {
		c.stream.MaxMsgs = 1 << 40 // a bound
		found := inspected(Topology{}.resultPlan(server.VERSION), c.stream, c.holds, (*stream).limits)
		if got := len(found) == 1 && strings.Contains(found[0].Found, "of max_bytes"); got != c.warned {
			t.Errorf("%s, %d bytes: %v, want a warning: %v", c.name, c.holds, found, c.warned)
		}
	}
}

// TestAFullStreamOfDeadLettersHoldsPartitionsUp shows that the finding mentions waiting partitions. They wait even if
// their inputs need no dead letter.
func TestAFullStreamOfDeadLettersHoldsPartitionsUp(t *testing.T) {
	t.Parallel()
	full := jetstream.StreamConfig{Name: "D", MaxBytes: 1000, Discard: jetstream.DiscardNew}
	found := inspected(Topology{}.deadLetterPlan(server.VERSION), full, 1000, (*stream).limits)
	if len(found) != 1 || !strings.Contains(found[0].String(), "holds 100% of max_bytes") || !strings.Contains(found[0].String(), "with exclusive delivery partitions wait") {
		t.Errorf("the findings are %v", found)
	}
}

// TestASmallerLimitThanAStreamHolds shows that the advice warns of a limit below the stream's size, because the
// stream would refuse messages.
func TestASmallerLimitThanAStreamHolds(t *testing.T) {
	t.Parallel()
	const limit = 1 << 30
	for holds, stops := range map[int64]bool{0: false, limit: false, limit + 1: true} {
		l := Topology{Kept: Kept{Results: Bounds{MaxBytes: limit, AskedBytes: true}}}
		found := inspected(l.resultPlan(server.VERSION), jetstream.StreamConfig{MaxBytes: 8 * limit}, uint64(holds), (*stream).limits)
		if got := strings.Contains(found[0].Advice, fmt.Sprintf("it holds %d bytes, and refuses messages", holds)); got != stops {
			t.Errorf("of a stream with %d bytes: %v; want that it refuses messages: %v", holds, found, stops)
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

// TestAdvisedEditsWork shows that the advised command removes the warning when the installed nats command runs it.
func TestAdvisedEditsWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nats"); err != nil {
		t.Skip("SKIPPED: no nats command, so the advised edits are only compared as texts")
	}
	for _, c := range boundsCases {
		if c.command == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if c.change != nil {
				c.change(&r.topology.Kept)
			}
			r.Create(c.stream)
			r.shell(c.command + " --force")
			for _, line := range r.about(c.stream.Name) {
				if c.name != "asked for no limits" { // leaves the stream without a bound
					t.Error(line)
				}
			}
		})
	}
}

// TestAdvisedEditsOfResultStreams covers streams without confirmations and streams without batches.
func TestAdvisedEditsOfResultStreams(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nats"); err != nil {
		t.Skip("SKIPPED: no nats command, so the advised edits are not run")
	}
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, NoAck: true, MaxBytes: 1 << 30, Discard: jetstream.DiscardNew})
	for range 2 {
		r.shell(editCommand.FindString(strings.ReplaceAll(strings.Join(r.found(1000, roomy), "\n"), ";", ")")) + " --force")
	}
	if c := r.StreamConfig("RESULTS"); c.NoAck || !c.AllowBatchPublish {
		t.Errorf("no_ack is %v and allow_batched is %v", c.NoAck, c.AllowBatchPublish)
	}
	r.topology.Kept.Results = NewBounds(0, 1<<30)
	if lines := r.about("RESULTS"); len(lines) > 0 {
		t.Error(lines)
	}
}

// TestInspectSaysThatInterestNeedsConsumers shows that the finding mentions that inputs without a consumer are
// dropped.
func TestInspectSaysThatInterestNeedsConsumers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(8)
	r.provision()
	c := r.StreamConfig("INGEST")
	c.Retention = jetstream.InterestPolicy
	r.Create(c)
	for _, p := range []string{"millrace-1", "millrace-4", "millrace-5", "millrace-7"} {
		if err := r.JS.DeleteConsumer(r.Ctx(), "INGEST", p); err != nil {
			t.Fatal(err)
		}
	}
	lines := r.found(10, roomy)
	const dropped = "drops inputs for which there is no consumer"
	wantLine(t, lines, "error (missing) consumer millrace-1: not there", dropped, "seq 1 1)")
	wantLine(t, lines, "error (missing) consumers millrace-4 to 5: not there", dropped, "seq 4 5)")
	wantLine(t, lines, "error (missing) consumer millrace-7: not there", dropped, "seq 7 7)")
}

func TestInspectOfFrames(t *testing.T) {
	t.Parallel()
	const payload = 1 << 20
	for _, c := range []struct {
		name   string
		frames Frames
		want   []string // parts of the only finding
	}{
		{"as it should be", Frames{Framed: true, Records: 1000, Bytes: payload, Result: 600, ResultMore: 500},
			[]string{"ok frames: up to 1000 records and 1048576 bytes per message; a record may have up to 4096 bytes (MILLRACE_BATCH_BYTES)"}},
		{"compressed single records", Frames{Compressed: true, Records: 1000, Bytes: 2 * payload, Result: 2 * payload},
			[]string{"ok frames: a record may have up to 4096 bytes (MILLRACE_BATCH_BYTES)"}},
		{"fewer bytes than the server takes", Frames{Framed: true, Records: 1000, Bytes: payload - 1, Result: 600, ResultMore: 500},
			[]string{"warning frames: the server takes messages of 1048576 bytes, and MILLRACE_FRAME_BYTES is 1048575",
				"go to the dead-letter subject; raise MILLRACE_FRAME_BYTES to at least 1048576"}},
		{"fewer bytes after decompression than the server takes", Frames{Compressed: true, Bytes: 4096},
			[]string{"warning frames", "MILLRACE_FRAME_BYTES is 4096"}},
		{"results in parts", Frames{Framed: true, Records: 65536, Bytes: payload, Result: 524, ResultMore: 1000},
			[]string{"ok frames: up to 65536 records", "the result of more than about 1048 records comes in parts, because the server takes messages of 1048576 bytes"}},
		{"a result that is larger than a message", Frames{Framed: true, Records: 2, Bytes: payload, Result: payload, ResultMore: payload},
			[]string{"warning frames: the result of one record may have 1048576 bytes", "raise the server's max_payload"}},
	} {
		i := &inspection{maxPayload: payload, use: Use{BatchBytes: 4096, Frames: c.frames}}
		i.frames(limitOfServer(payload))
		var lines []string
		for _, f := range i.findings {
			lines = append(lines, f.Level.String()+" "+f.String())
			if (f.Advice == "") != (f.Level == finding.OK) {
				t.Errorf("%s: the finding %q has the advice %q", c.name, f, f.Advice)
			}
		}
		if len(lines) != 1 {
			t.Errorf("%s: found %q, want one finding", c.name, lines)
		}
		wantLine(t, lines, c.want...)
		if strings.Contains(c.name, "as it should be") && strings.Contains(lines[0], "in parts") {
			t.Errorf("%s: every result fits, and it says %q", c.name, lines[0])
		}
	}
}

// TestInspectReportsTheLimitOfRecords shows that with frames only each record has to fit into a batch.
func TestInspectReportsTheLimitOfRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.frames = Frames{Framed: true, Records: 10, Bytes: roomy, Result: 10, ResultMore: 10}
	lines := r.found(1000, 1<<20)
	wantLine(t, lines, "warning server", "records over 1048576 bytes", "raise MILLRACE_BATCH_BYTES")
	wantLine(t, lines, "ok frames", "up to 10 records")
}

// TestInspectComparesResultsWithTheirStream shows that the result stream's limit counts if it is below the server's
// limit. The worker cuts results by the smaller limit.
func TestInspectComparesResultsWithTheirStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.frames = Frames{Framed: true, Records: 1000, Bytes: roomy, Result: 1000, ResultMore: 1000}
	for size, want := range map[int32][]string{
		-1:        {"ok frames", "up to 1000 records"},
		100 << 10: {"ok frames", "more than about 101 records comes in parts, because stream RESULTS takes messages of 102400 bytes"},
		1500:      {"warning frames", "the result of one record may have 1000 bytes, and stream RESULTS takes messages of 1500", "raise max_msg_size of stream RESULTS"},
	} {
		c := r.StreamConfig("RESULTS")
		c.MaxMsgSize = size
		r.Create(c)
		wantLine(t, r.found(1000, 1<<20), want...)
	}
}

// TestInspectOfTheLargestResult shows that a result that exactly fills a message with its headers causes no warning.
func TestInspectOfTheLargestResult(t *testing.T) {
	t.Parallel()
	const payload = 1 << 20
	for more, warned := range map[int]bool{0: false, 1: true} {
		i := &inspection{use: Use{Frames: Frames{Result: payload - resultHeaders + more}}}
		(&stream{inspection: i}).sizes(limitOfServer(payload))
		if got := len(i.findings) == 1 && i.findings[0].Level == finding.Warning; got != warned {
			t.Errorf("for a result of %d bytes more than fits: %v, want a warning: %v", more, i.findings, warned)
		}
	}
}
