package topology

import (
	"strings"
	"testing"

	"millrace/internal/ingest/finding"
)

func TestInspectOfFrames(t *testing.T) {
	t.Parallel()
	const payload = 1 << 20
	for _, c := range []struct {
		name   string
		frames Frames
		want   []string // parts of the only finding; nil means no finding
	}{
		{"messages are single records", Frames{Records: 10, Bytes: 10, Result: 2 * payload}, nil},
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
		i := &inspection{maxPayload: payload, results: limitOfServer(payload), use: Use{BatchBytes: 4096, Frames: c.frames}}
		serverInspector{i}.frames()
		var lines []string
		for _, f := range i.findings {
			lines = append(lines, f.Level.String()+" "+f.String())
			if (f.Advice == "") != (f.Level == finding.OK) {
				t.Errorf("%s: the finding %q has the advice %q", c.name, f, f.Advice)
			}
		}
		if c.want == nil {
			if len(lines) != 0 {
				t.Errorf("%s: found %q", c.name, lines)
			}
			continue
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
		resultInspector{streamInspector{i}}.fits("stream RESULTS", limitOfServer(payload))
		if got := len(i.findings) == 1 && i.findings[0].Level == finding.Warning; got != warned {
			t.Errorf("for a result of %d bytes more than fits: %v, want a warning: %v", more, i.findings, warned)
		}
	}
}
