package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/telemetry"
)

// textOf returns an expression for the text of a page element.
func textOf(id string) string { return fmt.Sprintf(`document.getElementById(%q).innerText`, id) }

// working returns a job with waiting messages. drain is the decrease of that number per second, and finished the rate
// of finished messages.
func working(waiting uint64, drain, finished float64) *telemetry.Job {
	return &telemetry.Job{Waiting: &waiting, Drain: &drain, Span: 30000, FinishedRate: finished, Started: time.Now().UnixMilli()}
}

// TestPageSaysHowTheJobGoes checks the page's first sentence for each state of a job.
func TestPageSaysHowTheJobGoes(t *testing.T) {
	var now atomic.Pointer[telemetry.Job]
	var trouble atomic.Pointer[error]
	noWait, noRate, noDrain := working(0, 0, 0), working(7, 0, 0), working(10000, 0, 50)
	noWait.Waiting, noWait.Drain, noRate.Span, noRate.Drain, noDrain.Drain = nil, nil, 0, nil, nil
	done := working(0, 20, 50)
	done.Finished = 1000
	now.Store(noWait)
	b := pages(t, telemetry.Debug{Timeline: lineOf(), Job: func() telemetry.Job { return *now.Load() }, Watch: telemetry.NewWatch(func() error {
		if err := trouble.Load(); err != nil {
			return *err
		}
		return nil
	}, nil)})
	for _, c := range []struct {
		name                  string
		job                   *telemetry.Job
		until, waiting, going string
	}{
		{"nothing is known", noWait, "–", "The server has not said yet what waits.", "well"},
		{"nothing has come", working(0, 0, 0), "Nothing waits", "No message has come yet.", "well"},
		{"all is done", done, "Nothing waits", "Every message is finished.", "well"},
		{"no rate yet", noRate, "–", "7 messages wait. The rate is known in a few seconds.", "well"},
		{"no drain yet", noDrain, "–", "10,000 messages wait. The rate is known in a few seconds.", "well"},
		{"a stream without an end", working(200, 20, 50), "Keeps up", "200 messages wait, less than 5 s of work.", "well"},
		{"a job with an end", working(12000, 60, 60), "3 min 20 s", "12,000 messages wait, 60/s fewer over the last 30 s.", "well"},
		{"others do it", working(12000, 2, 0), "1 h 40 min", "12,000 messages wait, 2.00/s fewer over the last 30 s.", "well"},
		{"nobody does it", working(1, 0, 0), "Rate 0", "1 message waits, and this worker finished none over the last 30 s.", "bad"},
		{"more comes", working(12000, -60, 500), "Growing", "12,000 messages wait, 60/s more over the last 30 s, although this worker finishes 500/s.", "slow"},
		{"as much comes", working(12000, 0, 500), "No end", "12,000 messages wait, and no fewer over the last 30 s, although this worker finishes 500/s.", "slow"},
	} {
		now.Store(c.job)
		b.await(c.name+": "+c.until, fmt.Sprintf(`%s === %q && %s === %q && document.getElementById("job-end").dataset.going === %q`,
			textOf("job-until"), c.until, textOf("job-waiting"), c.waiting, c.going))
	}
	err := errors.New("lost")
	trouble.Store(&err)
	b.await("an old figure is not the present one", textOf("job-until")+` === "Unknown" && `+textOf("job-waiting")+` === "12,000 messages wait, as of the server's last answer."`)
	b.wantNoProblems()
}

// TestPageShowsWhatSendersChoseAsText checks that the page escapes HTML in the data of dead letters and members, and
// truncates long texts.
func TestPageShowsWhatSendersChoseAsText(t *testing.T) {
	m := telemetry.NewMetrics(build())
	for n := range 7 {
		m.DeadLettered(inflight.DeadLetter{Subject: "ingest.<b>" + strings.Repeat("s", 5000), Sequence: uint64(n + 1), Record: n%2 - 1, Reason: "operator_error", Cause: errors.New("<img src=x>" + strings.Repeat("e", 5000))})
	}
	b := pages(t, telemetry.Debug{Timeline: lineOf(), Job: func() telemetry.Job {
		j := m.Job()
		j.Partitions, j.Filtered = 4, 1234
		j.Members = []telemetry.JobMember{{Name: "me", Self: true, Owns: 1, Partitions: "0"}, {Name: "<i>other</i>", Owns: 2, Partitions: "1-2"}}
		j.Streams = 12
		j.Shards = []telemetry.JobShard{{Stream: "INGEST-<b>", Waiting: 2500, Stalled: 1}, {Stream: "INGEST-2", Waiting: 1}}
		return j
	}})
	b.await("the last five are shown", `document.querySelectorAll("#job-last-rows li").length === 5`)
	got := value[[]string](b, `[...document.querySelectorAll("#job-last-rows li")].map((row) => row.innerText)`)
	for n, row := range got {
		want := fmt.Sprintf("operator_error\nsequence %d, record 0, ingest.<b>sss", 7-n)
		if n%2 == 0 {
			want = fmt.Sprintf("operator_error\nsequence %d, ingest.<b>sss", 7-n)
		}
		if !strings.Contains(row, want) || !strings.Contains(row, "<img src=x>eee") || len(row) > 700 {
			t.Errorf("row %d is %.200q (%d bytes), want %q", n, row, len(row), want)
		}
	}
	if text := value[string](b, textOf("job-letters")+` + ": " + `+textOf("job-letters-sub")); text != "7: operator_error 7" {
		t.Errorf("the dead letters are %q", text)
	}
	if sub := value[string](b, textOf("job-finished-sub")); !strings.HasSuffix(sub, "; filtered records: 1,234") {
		t.Errorf("below the finished messages is %q", sub)
	}
	shares := value[string](b, textOf("job-shares"))
	for _, part := range []string{"Partitions: 3 of 4 owned, 2 workers. A worker owns a partition from its first input on.", "this worker", "1 partition: 0", "<i>other</i>", "2 partitions: 1-2"} {
		if !strings.Contains(shares, part) {
			t.Errorf("the shares lack %q: %q", part, shares)
		}
	}
	shards := value[string](b, textOf("job-shards"))
	for _, part := range []string{"12 streams, the 2 with the most waiting messages", "INGEST-<b>", "2,500 messages wait, and a consumer delivers none", "1 message waits"} {
		if !strings.Contains(shards, part) {
			t.Errorf("the streams lack %q: %q", part, shards)
		}
	}
	for _, width := range []int64{wide, narrow} {
		b.prefers(width, "light")
		if out := value[[]string](b, overflow); len(out) > 0 {
			t.Errorf("%d pixels wide: these elements are wider than the window: %q", width, out)
		}
	}
	b.wantNoProblems()
}

// TestPictureOfAJobWithDeadLetters compares the page with the streams. The worker owns partitions, and some payloads
// are too large.
func TestPictureOfAJobWithDeadLetters(t *testing.T) {
	browser(t)
	s := serve(t)
	p := start(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_DEBUG_ADDR=127.0.0.1:0", "MILLRACE_OPERATORS=crc32c",
		"MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=4", "MILLRACE_BATCH_BYTES=4KiB", "MILLRACE_LOG_FORMAT=json"})
	p.await(`"msg":"working"`)
	b := open(t, address(t, p, "serving debug pages"))
	js := client(t, s)
	const small, large = 40, 3
	for n := range small + large {
		payload := make([]byte, 100)
		if n%15 == 14 || n >= small+1 {
			payload = make([]byte, 5000+n)
		}
		if _, err := js.Publish(t.Context(), fmt.Sprintf("ingest.customer.%d", n), payload); err != nil {
			t.Fatal(err)
		}
	}
	b.await("all messages are finished", fmt.Sprintf(`%s === "43" && %s === "Nothing waits"`, textOf("job-finished"), textOf("job-until")))
	stored := deadLetters(t, js)
	if letters := value[string](b, textOf("job-letters")+` + ": " + `+textOf("job-letters-sub")); letters != fmt.Sprintf("%d: too_large %[1]d", len(stored)) || len(stored) != 4 {
		t.Errorf("the dead letters are %q, and %d are stored", letters, len(stored))
	}
	rows := strings.Join(value[[]string](b, `[...document.querySelectorAll("#job-last-rows li")].map((row) => row.innerText)`), "\n")
	for _, l := range stored {
		if want := fmt.Sprintf("too_large\nsequence %s, %s", l.Header.Get("Millrace-Sequence"), l.Header.Get("Millrace-Subject")); !strings.Contains(rows, want) || !strings.Contains(rows, l.Header.Get("Millrace-Error")) {
			t.Errorf("the page lacks %q with %q: %s", want, l.Header.Get("Millrace-Error"), rows)
		}
	}
	b.await("all partitions are its own", textOf("job-shares")+`.includes("Partitions: 4 of 4 owned, 1 worker") && `+textOf("job-shares")+`.includes("4 partitions: 0-3")`)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if who := value[string](b, textOf("job-who")); who != fmt.Sprintf("%s · process %d · connection name millrace", host, p.cmd.Process.Pid) {
		t.Errorf("the worker is %q", who)
	}
	b.settled("the rate is known", textOf("job-records-sub")+`.startsWith("over 30 s")`)
	b.pictures("dead-letters", 6, 5)
	b.wantNoProblems()
}

func deadLetters(t *testing.T, js jetstream.JetStream) (letters []*jetstream.RawStreamMsg) {
	t.Helper()
	letterStream, err := js.Stream(t.Context(), "RESULTS_DEADLETTER")
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); ; seq++ {
		m, err := letterStream.GetMsg(t.Context(), seq, jetstream.WithGetMsgSubject("deadletter.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return letters
		}
		if err != nil {
			t.Fatal(err)
		}
		letters, seq = append(letters, m), m.Sequence
	}
}
