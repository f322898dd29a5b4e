package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Limits of the worker's log for one message. In each interval, the log may have a burst and a line with the number of
// suppressed lines. At the end, it may have both again.
const (
	logBurst    = 10
	logInterval = 10 * time.Second
)

// maxLines returns the maximum number of lines of one message that a process may log from its first line to its last.
// It uses the times in the log, so the test's own delays don't matter.
func (p *process) maxLines() int {
	p.t.Helper()
	all := p.logged()
	if len(all) == 0 {
		return 0
	}
	return (int(all[len(all)-1].Time.Sub(all[0].Time)/logInterval) + 2) * (logBurst + 1)
}

// tooLarge returns an input that fits in no batch of these tests' workers.
func tooLarge(i int) *nats.Msg {
	return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%7), Data: bytes.Repeat([]byte{byte(i)}, 4100+i%100)}
}

// TestFloodOfDeadLetters publishes only inputs that fit in no batch. The log is bounded, and both the log and a metric
// count each input.
func TestFloodOfDeadLetters(t *testing.T) {
	eachMode(t, func(r *rig) {
		n := times(20_000, 2_000)
		r.set("MILLRACE_BATCH_BYTES=4KiB", "MILLRACE_BATCH_PAYLOADS=100")
		r.serve(1)
		r.work(1)
		w := r.workers[0]
		r.feed(n, func(i int) *nats.Msg { return tooLarge(i + 1) }).wait()
		r.until("every input is settled", r.isFinished)
		counted := r.mustMetric(w, `millrace_log_suppressed_total{level="warn"}`)
		a := r.close("flood of dead letters", n)
		if a.dead != n {
			r.t.Errorf("%d dead letters, want %d", a.dead, n)
		}
		lines, told := w.linesOf("payload dead-lettered")
		if lines > w.maxLines() || lines-len(told)+sum(told) != n {
			r.t.Errorf("%d lines with the suppressed counts %v, want at most %d lines, and %d dead letters in total", lines, told, w.maxLines(), n)
		}
		if all := w.suppressed("WARN"); int(counted) > all || int(counted) < n-w.maxLines() {
			r.t.Errorf("the metric counted %v suppressed lines and the log %d, for %d dead letters", counted, all, n)
		}
	})
}

// TestNoStreamForDeadLetters deletes the dead-letter stream and publishes inputs that fit in no batch. They are
// redelivered repeatedly, and the log is bounded. When the stream is restored, each input becomes a dead letter.
func TestNoStreamForDeadLetters(t *testing.T) {
	eachMode(t, func(r *rig) {
		n := times(2_000, 200)
		r.set("MILLRACE_BATCH_BYTES=4KiB", "MILLRACE_BATCH_PAYLOADS=100")
		r.serve(1)
		r.work(1)
		w := r.workers[0]
		config := r.StreamConfig(deadStream)
		r.Delete(deadStream)
		r.feed(n, func(i int) *nats.Msg { return tooLarge(i + 1) }).wait()
		r.until("the worker says that it leaves lines out", func() bool { return w.suppressed("ERROR")+w.suppressed("INFO") > 0 })
		r.Create(jetstream.StreamConfig{Name: config.Name, Subjects: config.Subjects, Duplicates: config.Duplicates})
		if a := r.close("no stream for dead letters", n); a.dead != n {
			r.t.Errorf("%d dead letters, want %d", a.dead, n)
		}
		for _, message := range []string{"could not store a dead letter", "beginning the partition anew"} {
			if lines, told := w.linesOf(message); lines > w.maxLines() {
				r.t.Errorf("%d lines %q with the suppressed counts %v, want at most %d lines", lines, message, told, w.maxLines())
			}
		}
	})
}

type line struct {
	Time       time.Time `json:"time"`
	Level      string    `json:"level"`
	Message    string    `json:"msg"`
	Suppressed int       `json:"suppressed"`
}

func (p *process) logged() (lines []line) {
	p.t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	for one := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(one, &l); err == nil { // the last line may be incomplete
			lines = append(lines, l)
		}
	}
	return lines
}

// linesOf counts the lines whose message begins with the text. It also returns the suppressed counts in these lines.
func (p *process) linesOf(message string) (lines int, told []int) {
	p.t.Helper()
	for _, l := range p.logged() {
		if strings.HasPrefix(l.Message, message) {
			lines++
			if l.Suppressed > 0 {
				told = append(told, l.Suppressed)
			}
		}
	}
	return lines, told
}

// suppressed returns the number of suppressed lines of a level, according to the log so far.
func (p *process) suppressed(level string) (n int) {
	p.t.Helper()
	for _, l := range p.logged() {
		if l.Level == level {
			n += l.Suppressed
		}
	}
	return n
}

func sum(all []int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}
