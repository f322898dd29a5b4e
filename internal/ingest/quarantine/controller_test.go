package quarantine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// unanswered is a consumer that doesn't answer.
type unanswered struct{ Consumer }

func (unanswered) Info(context.Context) (*jetstream.ConsumerInfo, error) {
	return nil, errors.New("no answer")
}

// TestCarefulWhereNothingIsKnownAtTheStart shows that a worker starts carefully if the server reports nothing. An
// earlier process may have left a payload that breaks the device.
func TestCarefulWhereNothingIsKnownAtTheStart(t *testing.T) {
	trier := &tester{Isolation: Isolation{Levels: Levels{Full: 8192, Limit: 10}, Attempts: &Attempts{Consumer: unanswered{}}}}
	c := &Controller{trier: trier, caution: caution{horizon: time.Minute}}
	if c.IsDue() {
		t.Error("the Controller is cautious before it has queried the consumer")
	}
	c.Begin(t.Context())
	if !c.IsDue() || c.stride() != 1 {
		t.Errorf("without an answer, isolated pulling is due: %t, with %d deliveries at once; want true and 1", c.IsDue(), c.stride())
	}
	c.check(t.Context(), time.Now())
	if !c.IsDue() || c.stride() != 1 {
		t.Error("a second query without an answer ended the isolated pulling")
	}
}

// handed is an Intake that counts the deliveries that isolated pulling hands on.
type handed struct {
	Intake
	n int
}

func (h *handed) HandOn(inflight.Delivery) { h.n++ }

func (*handed) AwaitQuiet(context.Context, int) error { return nil }

// TestSuspectsInHandAtTheEndAreLeft shows that a held set is given back if no time is left to try it. Its payloads
// are then redelivered at once and not after AckWait.
func TestSuspectsInHandAtTheEndAreLeft(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	end()
	var left []uint64
	trier := &tester{Isolation: Isolation{Levels: Levels{Full: 64, Limit: 10}}}
	c := &Controller{in: &handed{}, trier: trier, max: 100, held: heldSet{g: &inflight.Batch{}}}
	for sequence := range uint64(2) {
		c.SetAside(inflight.Delivery{Msg: &paperMsg{}, Sequence: sequence + 1, NumDelivered: 2, Level: 1})
	}
	if err := c.Play(over); err != nil {
		t.Fatal(err)
	}
	c.Leave(func(d inflight.Delivery) { left = append(left, d.Sequence) })
	if len(left) != 2 || left[0] != 1 || left[1] != 2 {
		t.Errorf("inputs %v were left, want 1 and 2", left)
	}
}

// TestFreshPayloadsFlow shows that isolated pulling hands on all received new payloads.
func TestFreshPayloadsFlow(t *testing.T) {
	t.Parallel()
	const n = 100
	in := &handed{}
	g, items := &inflight.Batch{}, make([]int, n)
	c := &Controller{in: in, held: heldSet{g: g}}
	for i := range items {
		g.Add(inflight.Delivery{Msg: &paperMsg{}, Sequence: uint64(i + 1)})
		items[i] = i
	}
	c.flow(items)
	if in.n != n || len(g.Unsettled()) > 0 {
		t.Errorf("%d of %d payloads were handed on, and %d are still held", in.n, n, len(g.Unsettled()))
	}
}

// TestAnInterruptedTrialIsNotRunAgain interrupts a try by the end of the drain. The interrupted batch is still on the
// device, so it must not run a second time.
func TestAnInterruptedTrialIsNotRunAgain(t *testing.T) {
	t.Parallel()
	d, held := heldDevice(t)
	pipe, isolated, _ := isolate(t, d, 4)
	for range 4 { // an interrupted try might take one of the free batches
		open := held.close()
		trial, g := newTester(isolated), &inflight.Batch{}
		g.Add(paperInput(10))
		ctx, interrupt := context.WithCancel(t.Context())
		go func() {
			<-held.began
			interrupt()
		}()
		if err := trial.isolate(ctx, pipe, g, []int{0}); !errors.Is(err, context.Canceled) {
			t.Errorf("isolate = %v, want the end of the drain", err)
		}
		if n := len(trial.part.Unsettled()); n != 1 {
			t.Errorf("%d payloads are left for the worker to give back, want the one that was tried", n)
		}
		open()
		(<-pipe.Completed()).Release()
	}
}

// TestASuspectThatNeverRanIsGivenBack shows that a quarantined payload is not to blame if the device was already
// lost. This holds for any number of deliveries.
func TestASuspectThatNeverRanIsGivenBack(t *testing.T) {
	t.Parallel()
	pipe, isolated, ended := isolate(t, faultyDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 1}), 2)
	suspect := paperInput(10)
	suspect.Level = isolated.Limit
	if !isolated.Levels.isGuilty(suspect.Level) {
		t.Fatalf("level %d is not the level of the last try", suspect.Level)
	}
	other, err := pipe.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other.Append([]byte("what the device is lost with"))
	switch err := other.Submit(streams.ClosedByLinger); { // a command or the completion of the batch reports the loss
	case err == nil:
		(<-pipe.Completed()).Release()
	case errors.Is(err, device.ErrLost):
		other.Release()
	default:
		t.Fatal(err)
	}
	<-pipe.Over()

	g := &inflight.Batch{}
	g.Add(suspect)
	trial := newTester(isolated)
	trial.lone, trial.deaths = true, LoneRuns
	if err := trial.rerun(pipe, g).Compute(t.Context(), []int{0}); !errors.Is(err, device.ErrLost) {
		t.Errorf("Compute = %v, want the loss of the device", err)
	}
	if back, dead := ended.back, ended.dead; back != 1 || dead != 0 {
		t.Errorf("%d given back and %d dead-lettered, want 1 and none", back, dead)
	}
}
