package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/trim"
	"millrace/internal/telemetry"
)

// TestConditionKeepsItsTime checks that a condition keeps its start time even if its text changes every time.
func TestConditionKeepsItsTime(t *testing.T) {
	now := epoch
	var err error
	w := telemetry.NewWatch(func() error { return err }, func() time.Time { return now })
	want := func(state, why string, since time.Time) {
		t.Helper()
		if got := w.Condition(); got != (telemetry.Condition{State: state, Why: why, Since: since}) {
			t.Errorf("at %v it is %+v, want %s (%s) since %v", now, got, state, why, since)
		}
	}
	want("ready", "", epoch)
	now = now.Add(time.Minute)
	broken := now
	err = errors.New("1 payload is held back")
	want("failing", "1 payload is held back", broken)
	now = now.Add(time.Minute)
	err = errors.New("2 payloads are held back")
	want("failing", "2 payloads are held back", broken)
	now = now.Add(time.Minute)
	err = nil
	want("ready", "", now)
}

// TestConditionOfAStart checks that a start that waits for something differs from a start that is only slow.
func TestConditionOfAStart(t *testing.T) {
	starting := telemetry.NewHealth(telemetry.HealthOptions{}).Ready()
	for want, err := range map[string]error{"starting": starting, "waiting": fmt.Errorf("%w: waiting for NATS: connection refused", starting)} {
		if c := telemetry.NewWatch(func() error { return err }, nil).Condition(); c.State != want || c.Why != err.Error() {
			t.Errorf("%v is %+v, want %s", err, c, want)
		}
	}
}

// TestConditionIsKnownWithoutAPage checks that Run records the start of a condition although no page requests it.
func TestConditionIsKnownWithoutAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lostNATS atomic.Bool
		h := telemetry.NewHealth(telemetry.HealthOptions{
			Work: func() []telemetry.Work { return nil }, Connected: func() bool { return !lostNATS.Load() },
		})
		h.Started()
		w := telemetry.NewWatch(h.Ready, nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.Run(ctx)
		time.Sleep(time.Hour) //nolint:forbidigo // the clock of a synctest bubble is virtual
		synctest.Wait()
		lostNATS.Store(true)
		lost := time.Now()
		time.Sleep(10 * time.Minute) //nolint:forbidigo // as above
		synctest.Wait()
		if c := w.Condition(); c.State != "disconnected" || c.Why != "not connected to NATS" || c.Since.Sub(lost).Abs() > time.Second {
			t.Errorf("it is %+v, want disconnected since %v", c, lost)
		}
	})
}

// TestLiveReportsTheWorker checks the parts of /timeline that report the worker's condition and the source of its
// payloads.
func TestLiveReportsTheWorker(t *testing.T) {
	h := telemetry.NewHealth(telemetry.HealthOptions{})
	feed := telemetry.Feed{Server: "nats://n:4222", Stream: "INGEST", Subjects: []string{"ingest.>"}, Send: "worker send"}
	url := serve(t, telemetry.DebugHandler(telemetry.Debug{
		Timeline: timelineOf(), Watch: telemetry.NewWatch(h.Ready, func() time.Time { return epoch }), Feed: feed, CPU: telemetry.CPUFallback,
		Kept: func() telemetry.Kept { return telemetry.Kept{Consumer: "millrace-3", Inputs: 40} },
	}))
	var got struct {
		Condition struct {
			State, Why string
			Since      int64
		}
		Feed telemetry.Feed
		Kept telemetry.Kept
		CPU  string
	}
	_, _, body := get(t, url+"/timeline")
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if c := got.Condition; c.State != "starting" || c.Why != "starting" || c.Since != epoch.UnixMilli() {
		t.Errorf("the condition is %+v", c)
	}
	if f := got.Feed; f.Server != feed.Server || f.Stream != feed.Stream || strings.Join(f.Subjects, " ") != "ingest.>" || f.Send != feed.Send || got.CPU != "fallback" {
		t.Errorf("the feed is %+v, the CPU computes because of %q", f, got.CPU)
	}
	if got.Kept.Consumer != "millrace-3" || got.Kept.Inputs != 40 {
		t.Errorf("the stream keeps %+v", got.Kept)
	}
}

// TestKeptNamesTheConsumer: like the metric, the page names the consumer that holds the trim floor.
func TestKeptNamesTheConsumer(t *testing.T) {
	m := telemetry.NewMetrics(telemetry.Build{})
	end := &jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: 100}}
	for _, c := range []struct {
		state trim.State
		want  telemetry.Kept
	}{
		{trim.State{Info: end, Holder: "millrace-3", Floor: 60}, telemetry.Kept{Consumer: "millrace-3", Inputs: 40}},
		{trim.State{Held: trim.Missing}, telemetry.Kept{Why: "missing"}},
		{trim.State{Held: trim.NotTrimmed}, telemetry.Kept{}},
		{trim.State{Info: end, Floor: 100}, telemetry.Kept{}},
	} {
		if m.Trim(0, c.state); m.Kept() != c.want {
			t.Errorf("%+v is shown as %+v, want %+v", c.state, m.Kept(), c.want)
		}
	}
}
