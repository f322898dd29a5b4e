package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// move changes the delivery mode while inputs wait, as docs/answers.md describes.
type move struct {
	*testing.T
	js        jetstream.JetStream
	transform *jetstream.SubjectTransformConfig // the page's transform for exclusive delivery
	env       []string
	stored    uint64 // number of inputs
}

// setting returns the environment of a worker with the given delivery mode.
func (m *move) setting(mode string) []string { return append(m.env, "MILLRACE_DELIVERY="+mode) }

// work starts a worker with the given delivery mode.
func (m *move) work(mode string) *process {
	m.Helper()
	p := start(m.T, m.setting(mode))
	p.await("working")
	return p
}

// send stores n inputs on each of four subjects that begin with name.
func (m *move) send(name string, n int) {
	m.Helper()
	file := filepath.Join(m.TempDir(), name)
	lines := bytes.Repeat([]byte("an input\n"), n)
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		m.Fatal(err)
	}
	for i := range 4 {
		call(m.T, m.env, "send", "--lines", "--subject", fmt.Sprintf("ingest.%s.%d", name, i), file).want(m.T, exitDone)
		m.stored += uint64(n)
	}
}

// prepare configures the input stream for a delivery mode.
func (m *move) prepare(mode string) {
	m.Helper()
	s, err := m.js.Stream(m.Context(), "INGEST")
	if err != nil {
		m.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.SubjectTransform = nil
	if mode == "exclusive" {
		c.SubjectTransform = m.transform
	}
	if _, err := m.js.UpdateStream(m.Context(), c); err != nil {
		m.Fatal(err)
	}
}

func (m *move) consumers() (names []string) {
	m.Helper()
	s, err := m.js.Stream(m.Context(), "INGEST")
	if err != nil {
		m.Fatal(err)
	}
	list := s.ConsumerNames(m.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if list.Err() != nil || len(names) == 0 {
		m.Fatalf("the consumers are %q, %v", names, list.Err())
	}
	return names
}

// pause pauses the delivery of the named consumers. The returned function resumes it.
func (m *move) pause(names []string) (resume func()) {
	m.Helper()
	for _, name := range names {
		if _, err := m.js.PauseConsumer(m.Context(), "INGEST", name, time.Now().Add(time.Hour)); err != nil {
			m.Fatal(err)
		}
	}
	return func() {
		for _, name := range names {
			if _, err := m.js.ResumeConsumer(m.Context(), "INGEST", name); err != nil {
				m.Fatal(err)
			}
		}
	}
}

// takeMarkers makes a stream that was created for shared delivery accept commit markers.
func (m *move) takeMarkers(name string) {
	m.Helper()
	s, err := m.js.Stream(m.Context(), name)
	if err != nil {
		m.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Subjects, c.AllowAtomicPublish = append(c.Subjects, "commits."+name+".>"), true
	if _, err := m.js.UpdateStream(m.Context(), c); err != nil {
		m.Fatal(err)
	}
}

// TestTheDeliveryModeChangesWhileInputsWait follows docs/answers.md: the old workers keep running beside the new ones.
// The old consumers are paused until the new workers run. All inputs therefore wait during the change.
func TestTheDeliveryModeChangesWhileInputsWait(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/answers.md")
	if err != nil {
		t.Fatal(err)
	}
	edit := regexp.MustCompile(`(?m)^nats stream edit INGEST --transform-source '(.*)' --transform-destination '(.*)' --force$`).FindSubmatch(page)
	if edit == nil || !bytes.Contains(page, []byte("\nnats stream edit INGEST --no-transform --force\n")) {
		t.Fatal("the page lacks the commands that change the stream")
	}
	for former, latter := range map[string]string{"shared": "exclusive", "exclusive": "shared"} {
		t.Run("to "+latter, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			m := &move{
				T: t, js: client(t, s), transform: &jetstream.SubjectTransformConfig{Source: string(edit[1]), Destination: string(edit[2])},
				env: []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c"},
			}
			old := m.work(former)
			if former == "shared" {
				call(t, m.setting(latter), "check").want(t, exitFailed, "docs/answers.md", "nats stream edit RESULTS --subjects", "nats stream edit RESULTS_DEADLETTER --subjects")
				m.takeMarkers("RESULTS")
				m.takeMarkers("RESULTS_DEADLETTER")
			}
			resume := m.pause(m.consumers())
			m.send("waiting", 5000)
			m.prepare(latter)

			// A restarted worker refuses the stream until its former transform is restored.
			old.terminate()
			call(t, m.setting(former), "run").want(t, exitFailed, "stream INGEST")
			m.prepare(former)
			old = m.work(former)
			m.prepare(latter)

			fresh := m.work(latter)
			m.send("new", 500)
			natstest.Until(t, "the new inputs have results", func() bool { return messagesOn(t, m.js, "results.>") == 2000 })
			resume()
			natstest.Until(t, "all inputs are processed and removed", func() bool { return streamMessages(t, m.js, "INGEST") == 0 })
			for _, p := range []*process{old, fresh} {
				if code := p.terminate(); code != exitDone {
					t.Errorf("exit status %d after SIGTERM, want 0", code)
				}
			}
			if n := messagesOn(t, m.js, "results.>"); n != m.stored {
				t.Errorf("%d results of %d inputs", n, m.stored)
			}
			for _, mode := range []string{former, latter} {
				r := call(t, m.setting(mode), "audit")
				r.want(t, exitDone, "22,000 have one result", "nothing is missing, double")
				if testing.Verbose() {
					t.Log(mode, r.out, strings.TrimSpace(r.errors))
				}
			}
		})
	}
}
