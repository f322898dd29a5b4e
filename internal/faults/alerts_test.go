package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
)

// lethal is a prefix of payloads. A worker that is built with the tag faults loses its device on such a payload.
const lethal = "poison!\n"

// trickleEvery is the interval between the inputs of a worker with a low load.
const trickleEvery = 5 * time.Millisecond

// TestAlertsFireAndClear runs a real Prometheus and a real worker that loses its device. The worker exits with status
// 70 and is restarted until the payload that causes the loss is a dead letter. Next, a payload is too large for any
// batch. Then the result stream refuses everything for a while. The alert for each problem must fire. All alerts clear
// together at the end, because their windows are long. `make alerts-test` runs the test. A minute in the rules lasts
// one second. With MILLRACE_ALERTS=full the rules are unchanged, and the test takes more than half an hour.
func TestAlertsFireAndClear(t *testing.T) {
	need(t)
	binary := needPrometheus(t)
	t.Parallel()
	p, wait := hurried, natstest.Patience
	if os.Getenv("MILLRACE_ALERTS") == "full" {
		p, wait = asItIs, 30*time.Minute
	}
	r := newRig(t, "shared")
	r.failWorkers()
	addr := holdPort(t)
	r.set("MILLRACE_HTTP_ADDR="+addr, "MILLRACE_MAX_DELIVER=6", fmt.Sprintf("MILLRACE_BATCH_BYTES=%d", batchBytes))
	r.serve(1)
	s := r.supervise()
	defer s.retire()
	r.until("the worker is ready", func() bool { return s.current().isReady() })
	r.trickle()
	prom := r.watch(binary, p, addr, strings.TrimPrefix(s.served.URL, "http://"))
	story := &story{r: r, prom: prom, began: time.Now(), wait: wait}
	story.tell("Prometheus scrapes a worker every %v; rules: %s", p.scrape, p.name)
	r.wantRulesHealthy(prom, wait)
	r.wantDashboardAnswered(prom, p, wait)
	story.tell("every rule is healthy and every panel has data")
	story.wantQuiet(deviceLost, deadLetters, noProgress, operatorFaults)
	story.loseDevice(s)
	lost := s.restarted()
	story.tooLarge()
	story.refuseResults()
	for _, alert := range []string{noProgress, deviceLost, deadLetters} {
		story.await(alert+" has cleared", func() bool { return !prom.isFiring(alert) })
	}
	r.awaitResults(100)
	story.tell("results are stored as before")
	if n := s.restarted(); n != lost || !s.current().isReady() {
		t.Errorf("at the end the worker had %d unexpected restarts, ready: %t", n-lost, s.current().isReady())
	}
}

// The alerts that the test waits for.
const (
	deviceLost  = "MillraceDeviceLost"
	restarts    = "MillraceRestartsDeviceLost"
	deadLetters = "MillraceDeadLetters"
	noProgress  = "MillraceNoProgress"

	operatorFaults = "MillraceOperatorFaults"
)

// batchBytes is the maximum size of the worker's batches, in bytes. A larger payload fits in no batch.
const batchBytes = 128 << 10

// loseDevice publishes a payload that breaks the device, and checks the alerts and the dead letter.
func (s *story) loseDevice(worker *supervisor) {
	t := s.r.t
	t.Helper()
	s.publish([]byte(lethal))
	s.tell("a payload is published that breaks the device")
	s.await("the worker has ended and was started again", func() bool { return worker.restarted() > 0 })
	s.await(deviceLost+" fires", func() bool { return s.prom.isFiring(deviceLost) })
	s.await("the payload is in the dead letters", func() bool { return s.r.reasonOf(s.last) == "device_fault" })
	s.wantQuiet(restarts)                                                                    // this alert needs more than one payload
	s.await(operatorFaults+" fires", func() bool { return s.prom.isFiring(operatorFaults) }) // the worker's only operator lost the device more than twice
	s.await("Prometheus has scraped the worker that lost nothing", func() bool { return s.sawLast(worker.current()) })
	codes := worker.exitCodes()
	s.tell("the worker was started again after the exit codes %v", codes)
	seen, err := s.prom.values(`max_over_time(millrace_device_errors_total{kind="lost"}[1h])`)
	if err != nil {
		t.Error(err)
	}
	s.tell("the most that a scrape saw of the worker's own counter of losses: %v", seen)
	for _, code := range codes {
		if code != 70 {
			t.Errorf("the worker ended with status %d, want 70", code)
		}
	}
}

// sawLast reports whether Prometheus has scraped the current worker while that worker has a device. The next alerts
// need an increase of counters, so Prometheus must have the earlier values.
func (s *story) sawLast(worker *worker) bool {
	const started = "process_start_time_seconds"
	errors, err := worker.metric("millrace_device_errors_total{")
	if err != nil || errors > 0 {
		return false
	}
	at, err := worker.metric(started)
	if err != nil {
		return false
	}
	n, err := s.prom.query(fmt.Sprintf(`%s{pod="worker-0"} == %f`, started, at))
	return err == nil && n > 0
}

// tooLarge publishes a payload that fits in no batch, and checks the alerts.
func (s *story) tooLarge() {
	s.r.t.Helper()
	s.publish(make([]byte, batchBytes+1))
	s.tell("a payload is published that is too large")
	s.await("the large payload is in the dead letters", func() bool { return s.r.reasonOf(s.last) == "too_large" })
	s.await(deadLetters+" fires", func() bool { return s.prom.isFiring(deadLetters) })
}

// refuseResults makes the result stream refuse everything for a while, and checks the alerts.
func (s *story) refuseResults() {
	s.r.t.Helper()
	config := s.r.StreamConfig(resultStream)
	full := slices.IndexFunc(refusals, func(r refusal) bool { return r.name == "full" })
	refusals[full].begin(s.r, config)
	s.tell("the result stream is full in a moment")
	s.await(noProgress+" fires", func() bool { return s.prom.isFiring(noProgress) })
	refusals[full].end(s.r, config)
	s.tell("it takes results again")
}

// trickle publishes one input after another until the test ends.
func (r *rig) trickle() {
	nc, input := r.connect(), r.inputs()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(trickleEvery)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = nc.PublishMsg(&nats.Msg{Subject: "ingest.web.1", Data: input(i).Data}) // a lost input doesn't matter
			}
		}
	}()
	r.t.Cleanup(func() { close(stop); <-done })
}

// wantRulesHealthy waits until each rule has been evaluated without an error and each recording rule has a series.
// Rules for events that have not happened are exempt.
func (r *rig) wantRulesHealthy(prom *prometheus, wait time.Duration) {
	r.t.Helper()
	var missing []string
	healthy := func() bool {
		all, err := prom.rules()
		if err != nil || len(all) == 0 {
			missing = []string{fmt.Sprint(err)}
			return false
		}
		missing = nil
		for _, rule := range all {
			if rule.Health != "ok" {
				missing = append(missing, rule.Name+" is "+rule.Health+" "+rule.LastError)
			} else if n, err := prom.query(rule.Name); rule.Type == "recording" && (err != nil || n == 0) {
				missing = append(missing, rule.Name+" has no series")
			}
		}
		return len(missing) == 0
	}
	if !r.comesWithin(wait, healthy) {
		r.t.Fatalf("rules without a result:\n%s", strings.Join(missing, "\n"))
	}
}

// story logs each observation with its time.
type story struct {
	r     *rig
	prom  *prometheus
	began time.Time
	wait  time.Duration // maximum wait for an event that must happen
	last  uint64        // sequence of the last published input
}

func (s *story) tell(format string, args ...any) {
	s.r.t.Logf("%6.1f s  %s; firing: %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...), s.alerts())
}

func (s *story) await(what string, cond func() bool) {
	s.r.t.Helper()
	if !s.r.comesWithin(s.wait, cond) {
		s.r.t.Fatalf("not within %v: %s; firing: %s", s.wait, what, s.alerts())
	}
	s.tell("%s", what)
}

func (s *story) wantQuiet(alerts ...string) {
	s.r.t.Helper()
	for _, a := range alerts {
		if s.prom.isFiring(a) {
			s.r.t.Errorf("%s fires unexpectedly", a)
		}
	}
}

func (s *story) publish(payload []byte) {
	s.r.t.Helper()
	ctx := s.r.Ctx()
	ack, err := s.r.JS.Publish(ctx, "ingest.web.0", payload)
	if err != nil {
		s.r.t.Fatal(err)
	}
	s.last = ack.Sequence
}

// reasonOf returns the reason in the dead letter of an input. It returns an empty string if the latest dead letter on
// the input's subject belongs to another input.
func (r *rig) reasonOf(sequence uint64) string {
	ctx, cancel := r.shortly()
	defer cancel()
	letters, err := r.JS.Stream(ctx, deadStream)
	if err != nil {
		return ""
	}
	m, err := letters.GetLastMsgForSubject(ctx, "deadletter.web.0")
	if err != nil || m.Header.Get(results.HeaderSequence) != fmt.Sprint(sequence) {
		return ""
	}
	return m.Header.Get(results.HeaderReason)
}

func (s *story) alerts() string {
	names, err := s.prom.firing()
	if err != nil {
		return err.Error()
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
