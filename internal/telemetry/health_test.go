package telemetry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/telemetry"
)

// patient is a worker whose state the test sets.
type patient struct {
	now       time.Time
	connected bool
	work      []telemetry.Work
}

func (p *patient) health() *telemetry.Health {
	p.now, p.connected = epoch, true
	return telemetry.NewHealth(telemetry.HealthOptions{
		Work:      func() []telemetry.Work { return p.work },
		Connected: func() bool { return p.connected },
		Now:       func() time.Time { return p.now },
	})
}

// ackWait is the AckWait of all work in these tests.
const ackWait = 30 * time.Second

// answers checks both probes. live and ready are parts of the expected errors. An empty string means that no error is
// expected.
func answers(t *testing.T, h *telemetry.Health, live, ready string) {
	t.Helper()
	for _, probe := range []struct {
		name, want string
		got        error
	}{{"live", live, h.Live()}, {"ready", ready, h.Ready()}} {
		switch {
		case probe.want == "" && probe.got != nil:
			t.Errorf("%s: %v, want nil", probe.name, probe.got)
		case probe.want != "" && (probe.got == nil || !strings.Contains(probe.got.Error(), probe.want)):
			t.Errorf("%s: %v, want %q", probe.name, probe.got, probe.want)
		}
	}
}

// TestReadinessOfAWaitingWorker: a worker that waits for NATS at its start is live, and its readiness error names NATS.
func TestReadinessOfAWaitingWorker(t *testing.T) {
	var p patient
	h := p.health()
	p.connected = false
	answers(t, h, "", "starting")
	h.Waiting(errors.New("connection refused"))
	answers(t, h, "", "starting: waiting for NATS: connection refused")
	h.Waiting(nil)
	p.connected = true
	if err := h.Ready(); err == nil || err.Error() != "starting" {
		t.Errorf("after the wait, ready: %v, want starting", err)
	}
	h.Waiting(errors.New("connection refused"))
	h.Started()
	answers(t, h, "", "")
}

// TestReadinessOfAStalledWorker: a worker that gets no deliveries is not ready. It stays live, because a restart may not help.
func TestReadinessOfAStalledWorker(t *testing.T) {
	var p patient
	var stalled error
	p.now, p.connected = epoch, true
	h := telemetry.NewHealth(telemetry.HealthOptions{
		Work: func() []telemetry.Work { return nil }, Connected: func() bool { return p.connected }, Now: func() time.Time { return p.now },
		Stalled: func() error { return stalled },
	})
	h.Started()
	answers(t, h, "", "")
	stalled = errors.New(`consumer "millrace" has 7 messages and has delivered none for 2m0s`)
	answers(t, h, "", "has 7 messages")
	stalled = nil
	answers(t, h, "", "")
}

func TestReadiness(t *testing.T) {
	var p patient
	h := p.health()
	answers(t, h, "", "starting")
	h.Started()
	answers(t, h, "", "")
	p.connected = false
	answers(t, h, "", "not connected to NATS")
	p.connected = true
	answers(t, h, "", "")
	h.Draining()
	answers(t, h, "", "draining")
}

func TestALostDeviceIsNotLive(t *testing.T) {
	var p patient
	h := p.health()
	h.Started()
	p.work = []telemetry.Work{{Name: "GPU-1"}, {Name: "GPU-2", Lost: device.ErrLost}}
	answers(t, h, "GPU-2: device lost", "GPU-2: device lost")
	if !errors.Is(h.Live(), device.ErrLost) {
		t.Error("the error doesn't wrap the device's error")
	}
}

func TestAStallIsNotLiveUntilItMovesOn(t *testing.T) {
	var p patient
	h := p.health()
	h.Started()
	p.work = []telemetry.Work{{Name: "a", AckWait: ackWait, InHand: 2, Progress: p.now}, {Name: "b", AckWait: ackWait, InHand: 1, Progress: p.now}}
	answers(t, h, "", "")
	p.now = p.now.Add(30 * time.Second)
	answers(t, h, "", "")
	p.work[1].Progress = p.now // the progress of the other pipeline must not hide the stall
	p.now = p.now.Add(ms)
	answers(t, h, "a: 2 batches in flight and no progress for 30.001s", "no progress")
	p.work[0].Progress = p.now
	answers(t, h, "", "")
}

// TestPayloadsHeldBackMakeItUnready: no payload is lost and a restart would not help, but a person must investigate.
func TestPayloadsHeldBackMakeItUnready(t *testing.T) {
	var p patient
	h := p.health()
	h.Started()
	p.work = []telemetry.Work{{Name: "worker", AckWait: ackWait, HeldBack: 3}}
	answers(t, h, "", "")
	p.now = p.now.Add(30 * time.Second)
	answers(t, h, "", "")
	p.now = p.now.Add(ms)
	answers(t, h, "", "worker: 3 payloads are held back")
	p.work[0].HeldBack = 0
	answers(t, h, "", "")
	p.work[0].HeldBack = 1
	answers(t, h, "", "")
}

// TestIdleTimeIsNoStall: a batch that arrives after an hour without work has a full AckWait.
func TestIdleTimeIsNoStall(t *testing.T) {
	var p patient
	h := p.health()
	h.Started()
	p.work = []telemetry.Work{{Name: "a", AckWait: ackWait, Progress: p.now}}
	p.now = p.now.Add(time.Hour)
	answers(t, h, "", "")
	p.work[0].InHand = 1
	p.now = p.now.Add(time.Second)
	answers(t, h, "", "")
	p.now = p.now.Add(30 * time.Second)
	answers(t, h, "no progress", "no progress")
}

// TestTheFirstProbeSeesNoStall: the time before the first probe is not part of a stall.
func TestTheFirstProbeSeesNoStall(t *testing.T) {
	var p patient
	h := p.health()
	p.work = []telemetry.Work{{Name: "a", AckWait: ackWait, InHand: 1, Progress: p.now.Add(-time.Hour)}}
	answers(t, h, "", "starting")
	p.now = p.now.Add(31 * time.Second)
	answers(t, h, "no progress", "starting")
}

// TestAnUnknownAckWaitIsNotJudged: before the consumer exists, AckWait is unknown, so no stall is reported.
func TestAnUnknownAckWaitIsNotJudged(t *testing.T) {
	var p patient
	h := p.health()
	p.work = []telemetry.Work{{Name: "a", InHand: 1, Progress: p.now}}
	answers(t, h, "", "starting")
	p.now = p.now.Add(24 * time.Hour)
	answers(t, h, "", "starting")
	p.work[0].AckWait = ackWait
	answers(t, h, "no progress", "starting")
}

// TestAnOutageIsNoStall: during an outage, batches wait for NATS, and a restart would not help.
func TestAnOutageIsNoStall(t *testing.T) {
	var p patient
	h := p.health()
	h.Started()
	p.work = []telemetry.Work{{Name: "a", AckWait: ackWait, InHand: 1, Progress: p.now}}
	p.connected = false
	for range 10 {
		p.now = p.now.Add(10 * time.Second)
		answers(t, h, "", "not connected")
	}
	p.connected = true
	p.now = p.now.Add(30 * time.Second)
	answers(t, h, "", "")
	p.now = p.now.Add(ms)
	answers(t, h, "no progress", "no progress")
}

// TestADeviceThatHangsIsNotLive: a batch that exceeds its bound on one device is detected. Progress of another device
// or of the whole worker doesn't hide it.
func TestADeviceThatHangsIsNotLive(t *testing.T) {
	var p patient
	h := p.health()
	h.Started()
	p.work = []telemetry.Work{
		{Name: "worker", AckWait: ackWait, InHand: 9, Progress: p.now},
		{Name: "GPU-1", InHand: 3, Age: 10 * time.Second, Bound: 10 * time.Second},
		{Name: "GPU-2", InHand: 8, Age: ms, Bound: 10 * time.Second},
	}
	answers(t, h, "", "")
	p.work[1].Age += ms
	const says = "GPU-1: 3 batches in flight, the oldest on the device for 10.001s, longer than its bound of 10s"
	answers(t, h, says, says)
	if text := h.Live().Error(); strings.Contains(text, "GPU-2") {
		t.Errorf("%q blames a device that works", text)
	}
	p.work[1].Age = 0 // the batch completed after all
	answers(t, h, "", "")
	p.work[1].Age, p.work[1].Bound = time.Hour, 0
	answers(t, h, "", "")
	p.work[1].Lost = device.ErrHung
	answers(t, h, "GPU-1: device lost", "GPU-1: device lost")
}
