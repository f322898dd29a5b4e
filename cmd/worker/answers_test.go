package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
)

// answers returns the text of docs/answers.md.
func answers(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/answers.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestAnswersHaveTheFiguresOfOthers compares the page's figures with the code and the README.
func TestAnswersHaveTheFiguresOfOthers(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const figures = "3 minutes on 2 cores, and 6.5 the first time"
	page := strings.Join(strings.Fields(answers(t)), " ")
	if !strings.Contains(string(readme), figures) || !strings.Contains(page, figures) {
		t.Errorf("README.md and docs/answers.md don't both say that the tests take %s", figures)
	}
	for mode, release := range map[string]fmt.Stringer{"Shared": topology.OldestShared, "Exclusive": topology.OldestExclusive} {
		if want := fmt.Sprintf("%s delivery needs nats-server %v", mode, release); !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// footprint is the number and size of the messages that a worker added to the result stream.
type footprint struct {
	batches              uint64
	markers, markerBytes uint64 // number and size of messages of batches on commits.>
	fenceBytes           uint64 // size of the marker that fences the partition
	resultBytes          uint64
}

// resultState returns the number and size of the messages in the result stream.
func resultState(t *testing.T, js jetstream.JetStream) jetstream.StreamState {
	t.Helper()
	s, err := js.Stream(t.Context(), "RESULTS")
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State
}

// footprintOf measures the result stream of a worker with exclusive delivery and one partition. fast allows fast
// batches, which a replicated stream doesn't support.
func footprintOf(t *testing.T, inputs uint64, exactlyOnce string, fast bool) (f footprint) {
	t.Helper()
	s := serve(t)
	js := client(t, s)
	results, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "RESULTS", Subjects: []string{"results.>", "commits.RESULTS.>"}, AllowAtomicPublish: true, AllowBatchPublish: fast,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{
		"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c", "MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=1",
		"MILLRACE_BATCH_PAYLOADS=100", "MILLRACE_LOG_FORMAT=json", "MILLRACE_HTTP_ADDR=127.0.0.1:0", "MILLRACE_EXACTLY_ONCE=" + exactlyOnce,
	})
	p.await(`"msg":"working"`)
	for i := range inputs {
		if _, err := js.PublishAsync("ingest.web", fmt.Append(nil, "payload ", i)); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Until(t, "every input has a result, and is acknowledged", func() bool {
		return messagesOn(t, js, "results.>") == inputs && streamMessages(t, js, "INGEST") == 0
	})
	batches := regexp.MustCompile(`millrace_batches_total\{device="host"\} (\d+)`)
	payloads := fmt.Sprintf(`millrace_batch_payloads_sum{device="host"} %d`, inputs)
	metrics := address(t, p, "serving metrics and health") + "metrics"
	awaitBody(t, metrics, payloads)
	if f.batches, err = strconv.ParseUint(batches.FindStringSubmatch(body(t, metrics))[1], 10, 64); err != nil {
		t.Fatal(err)
	}
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	all := resultState(t, js)
	if exactlyOnce == "required" { // the first message is the fence
		if err := results.DeleteMsg(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		f.fenceBytes = all.Bytes - resultState(t, js).Bytes
		all = resultState(t, js)
	}
	if err := results.Purge(t.Context(), jetstream.WithPurgeSubject("commits.>")); err != nil {
		t.Fatal(err)
	}
	left := resultState(t, js)
	f.markers, f.markerBytes, f.resultBytes = all.Msgs-left.Msgs, all.Bytes-left.Bytes, left.Bytes
	if left.Msgs != inputs {
		t.Errorf("%d results of %d inputs", left.Msgs, inputs)
	}
	return f
}

// TestAnswerWhatCommitMarkersCost measures each row of the page's table.
func TestAnswerWhatCommitMarkersCost(t *testing.T) {
	t.Parallel()
	programs(t)
	const inputs = 2000
	rows := map[string][]float64{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \|$`).FindAllStringSubmatch(answers(t), -1) {
		for _, figure := range row[2:] {
			n, err := strconv.ParseFloat(figure, 64)
			if err != nil {
				t.Fatal(err)
			}
			rows[row[1]] = append(rows[row[1]], n)
		}
	}
	var plain, fast, atomic footprint
	t.Run("measure", func(t *testing.T) {
		for name, measure := range map[string]func(*testing.T){
			"no markers":     func(t *testing.T) { plain = footprintOf(t, inputs, "off", true) },
			"fast batches":   func(t *testing.T) { fast = footprintOf(t, inputs, "required", true) },
			"atomic batches": func(t *testing.T) { atomic = footprintOf(t, inputs, "required", false) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				measure(t)
			})
		}
	})
	if plain.markers != 0 {
		t.Errorf("%d commit markers with MILLRACE_EXACTLY_ONCE=off", plain.markers)
	}
	for row, f := range map[string]footprint{"without replicas": fast, "with replicas": atomic} {
		said := rows[row]
		if len(said) != 3 || f.batches < inputs/100 {
			t.Fatalf("the page has no row %q with three figures, only %v, or there were too few batches: %+v", row, rows, f)
		}
		batches := float64(f.batches)
		if float64(f.markers) != said[0]*batches {
			t.Errorf("%s: %d commit markers for %d batches, but the page says %v per batch", row, f.markers, f.batches, said[0])
		}
		near(t, row+": bytes for each batch", float64(f.markerBytes)/batches, said[1])
		near(t, row+": bytes for each result", (float64(f.resultBytes)-float64(plain.resultBytes))/inputs, said[2])
		near(t, row+": bytes when a worker takes over", float64(f.fenceBytes), 240)
	}
}

// near checks that a figure of the page differs from the measured value by at most a tenth. A figure of 0 must be
// exact.
func near(t *testing.T, what string, measured, said float64) {
	t.Helper()
	if measured < 0.9*said || measured > 1.1*said {
		t.Errorf("%s: the page says %v, but the measured value is %.1f", what, said, measured)
	}
}

// TestAnswerAnotherConsumerOnTheInputStream runs a worker beside an active reader, and then beside a consumer without a
// reader.
func TestAnswerAnotherConsumerOnTheInputStream(t *testing.T) {
	t.Parallel()
	s := serve(t)
	js := client(t, s)
	env := []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c", "MILLRACE_DELIVERY=exclusive"}
	start(t, env).await("working")
	input := func(i int) {
		if _, err := js.Publish(t.Context(), "ingest.web", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := js.OrderedConsumer(t.Context(), "INGEST", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"*.ingest.>"}})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := reader.Messages()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		input(i)
		if m, err := messages.Next(); err != nil || string(m.Data()) != fmt.Sprint(i) {
			t.Fatalf("the reader gets %v, %v, want input %d", m, err, i)
		}
	}
	removed := func() bool { return streamMessages(t, js, "INGEST") == 0 }
	natstest.Until(t, "inputs are removed beside a reader", removed)
	unread := jetstream.ConsumerConfig{Durable: "unread", FilterSubject: "*.ingest.>", AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverNewPolicy}
	if _, err := js.CreateConsumer(t.Context(), "INGEST", unread); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		input(i)
	}
	natstest.Until(t, "all inputs have results", func() bool { return messagesOn(t, js, "results.>") == 40 })
	call(t, env, "check").want(t, exitDone, "consumer unread holds the floor, 20 sequences before the end")
	if n := streamMessages(t, js, "INGEST"); n != 20 {
		t.Errorf("the stream has %d inputs, want the 20 that the consumer hasn't read", n)
	}
	if err := js.DeleteConsumer(t.Context(), "INGEST", "unread"); err != nil {
		t.Fatal(err)
	}
	natstest.Until(t, "inputs are removed without the consumer", removed)
	call(t, env, "audit").want(t, exitDone, "40 have one result")
}

// TestAnswerHowToReadManyDeadLetters runs the page's command with a smaller limit on a stream that also has commit
// markers.
func TestAnswerHowToReadManyDeadLetters(t *testing.T) {
	t.Parallel()
	if !strings.Contains(answers(t), "\nworker results --last 10000 | jq -c 'select(.dead_letter)'") {
		t.Fatal("the page lacks the command")
	}
	s := serve(t)
	js := client(t, s)
	env := []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c", "MILLRACE_DELIVERY=exclusive", "MILLRACE_DECOMPRESS=gzip"}
	start(t, env).await("working")
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, bytes.Repeat([]byte("this is not gzip\n"), 250), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"a", "b", "c", "d"} {
		call(t, env, "send", "--lines", "--subject", "ingest."+subject, file).want(t, exitDone)
	}
	natstest.Until(t, "1,000 dead letters are stored", func() bool { return messagesOn(t, js, "deadletter.>") == 1000 })
	r := call(t, env, "results", "--last", "900")
	r.want(t, exitDone)
	reasons := map[string]int{}
	for _, line := range printed(t, r.out) {
		if line.DeadLetter != nil {
			reasons[line.DeadLetter.Reason]++
		}
	}
	if reasons["invalid_encoding"] != 900 || len(reasons) != 1 {
		t.Errorf("the command prints dead letters of %v, want 900 with invalid_encoding", reasons)
	}
}
