package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"millrace/internal/plan"
)

func printed(t *testing.T, c plan.Comparison, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := c.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

const fourByThree = `Sequential, 1 lane, a slot is 1 time unit:
t=0: copy_in(batch 1)
t=1: compute(batch 1)
t=2: copy_out(batch 1)
t=3: copy_in(batch 2)
t=4: compute(batch 2)
t=5: copy_out(batch 2)
t=6: copy_in(batch 3)
t=7: compute(batch 3)
t=8: copy_out(batch 3)
t=9: copy_in(batch 4)
t=10: compute(batch 4)
t=11: copy_out(batch 4)
Total: 12 time units

Pipelined, 4 lanes, a slot is 1 time unit:
t=0: copy_in(batch 1)
t=1: copy_in(batch 2) | compute(batch 1)
t=2: copy_in(batch 3) | compute(batch 2) | copy_out(batch 1)
t=3: copy_in(batch 4) | compute(batch 3) | copy_out(batch 2)
t=4: compute(batch 4) | copy_out(batch 3)
t=5: copy_out(batch 4)
Total: 6 time units

Speedup: 2.00x
`

func TestClassicForm(t *testing.T) {
	c, err := plan.Textbook{Batches: 4, Stages: [3]float64{1, 1, 1}}.Run(context.Background())
	if got := printed(t, c, err); got != fourByThree {
		t.Errorf("printed\n%s\nwant\n%s", got, fourByThree)
	}
}

const unequal = `
Pipelined, 3 lanes, a slot is 1 time unit:
t=0: copy_in(batch 1)
t=1: copy_in(batch 1)
t=2: copy_in(batch 2) | compute(batch 1)
t=3: copy_in(batch 2) | compute(batch 1)
t=4: copy_in(batch 3) | compute(batch 1)
t=5: copy_in(batch 3) | compute(batch 2) | copy_out(batch 1)
t=6: compute(batch 2)
t=7: compute(batch 2)
t=8: compute(batch 3) | copy_out(batch 2)
t=9: compute(batch 3)
t=10: compute(batch 3)
t=11: copy_out(batch 3)
Total: 12 time units

Speedup: 1.50x
`

func TestStagesOfSeveralSlots(t *testing.T) {
	c, err := plan.Textbook{Batches: 3, Stages: [3]float64{2, 3, 1}}.Run(context.Background())
	got := printed(t, c, err)
	if !strings.Contains(got, "Total: 18 time units\n") || !strings.HasSuffix(got, unequal) {
		t.Errorf("printed\n%s\nwant a sequential total of 18 and\n%s", got, unequal)
	}
}

// TestFractions checks that a slot lists all work that ran in it, even work that is shorter than the slot.
func TestFractions(t *testing.T) {
	c, err := plan.Textbook{Batches: 2, Stages: [3]float64{0.5, 0.25, 1.5}}.Run(context.Background())
	got := printed(t, c, err)
	want := "t=0: copy_in(batch 1) | copy_in(batch 2) | compute(batch 1) | copy_out(batch 1)\n" +
		"t=1: compute(batch 2) | copy_out(batch 1)\n" +
		"t=2: copy_out(batch 1) | copy_out(batch 2)\n" +
		"t=3: copy_out(batch 2)\n" +
		"Total: 3.75 time units\n"
	if !strings.Contains(got, "Total: 4.5 time units\n") || !strings.Contains(got, want) {
		t.Errorf("printed\n%s\nwant a sequential total of 4.5 and\n%s", got, want)
	}
}

// The test compares the durations of the schedules with the textbook formula: batches + stages - 1.
func TestPipelineTakesBatchesAndStagesLessOne(t *testing.T) {
	for _, batches := range []int{1, 2, 3, 4, 5, 17, 100} {
		c, err := plan.Textbook{Batches: batches, Stages: [3]float64{1, 1, 1}}.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(3 * batches); c.Sequential.Total != want {
			t.Errorf("%d batches one after another took %v units, want %v", batches, c.Sequential.Total, want)
		}
		if want := float64(batches + 3 - 1); c.Pipelined.Total != want || len(c.Pipelined.Slots) != batches+3-1 {
			t.Errorf("%d batches overlapped took %v units in %d slots, want %v", batches, c.Pipelined.Total, len(c.Pipelined.Slots), want)
		}
	}
}

// The longest stage determines the pace. If the stages are equal, three lanes are enough.
func TestFewerLanesStall(t *testing.T) {
	for _, c := range []struct {
		lanes int
		want  float64
	}{
		{1, 24}, // 8 x 3, because nothing overlaps
		{2, 13}, // two batches in every three slots, plus two slots for the last pair
		{3, 10}, // 8 + 3 - 1
		{8, 10},
	} {
		got, err := plan.Textbook{Batches: 8, Stages: [3]float64{1, 1, 1}, Lanes: c.lanes}.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if got.Pipelined.Total != c.want || got.Pipelined.Lanes != c.lanes {
			t.Errorf("8 batches on %d lanes took %v units on %d, want %v", c.lanes, got.Pipelined.Total, got.Pipelined.Lanes, c.want)
		}
	}
}

const fourChunks = `Serial, 1 lane, a slot is T:
t=0: copy_in(payload 1)
t=1: compute(payload 1)
t=2: copy_out(payload 1)
Total: 3 T

In chunks, 4 lanes, a slot is T/4:
t=0: copy_in(chunk 1)
t=1: copy_in(chunk 2) | compute(chunk 1)
t=2: copy_in(chunk 3) | compute(chunk 2) | copy_out(chunk 1)
t=3: copy_in(chunk 4) | compute(chunk 3) | copy_out(chunk 2)
t=4: compute(chunk 4) | copy_out(chunk 3)
t=5: copy_out(chunk 4)
Total: 1.5 T

Speedup: 2.00x
`

func TestOnePayloadInFourChunks(t *testing.T) {
	c, err := plan.Textbook{Batches: 4, Chunked: true, Stages: [3]float64{1, 1, 1}}.Run(context.Background())
	if got := printed(t, c, err); got != fourChunks {
		t.Errorf("printed\n%s\nwant\n%s", got, fourChunks)
	}
}

// N chunks take T (1 + 2/N) when they are pipelined.
func TestChunksAgreeWithTheModel(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 10, 64, plan.MaxBatches} {
		c, err := plan.Textbook{Batches: n, Chunked: true, Stages: [3]float64{1, 1, 1}}.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if want := 1 + 2/float64(n); math.Abs(c.Pipelined.Total-want) > 1e-9 || c.Sequential.Total != 3 {
			t.Errorf("%d chunks: %v T pipelined and %v T sequential, want %v and 3", n, c.Pipelined.Total, c.Sequential.Total, want)
		}
	}
}

func TestPlansThatMakeNoSense(t *testing.T) {
	ones := [3]float64{1, 1, 1}
	for want, err := range map[string]error{
		"0 batches: take 1 to 1000":        plan.Textbook{Stages: ones}.Check(),
		"1001 batches":                     plan.Textbook{Batches: 1001, Stages: ones}.Check(),
		"-1 lanes":                         plan.Textbook{Batches: 1, Stages: ones, Lanes: -1}.Check(),
		"1001 lanes":                       plan.Textbook{Batches: 1, Stages: ones, Lanes: 1001}.Check(),
		"compute takes 0 units":            plan.Textbook{Batches: 1, Stages: [3]float64{1, 0, 1}}.Check(),
		"copy_out takes NaN units":         plan.Textbook{Batches: 1, Stages: [3]float64{1, 1, math.NaN()}}.Check(),
		"copy_in takes 5000 units":         plan.Textbook{Batches: 1, Stages: [3]float64{5000, 1, 1}}.Check(),
		"lower the batches or the stages":  plan.Textbook{Batches: 1000, Stages: [3]float64{1, 100, 1}}.Check(),
		"0 chunks: take 1 to 1000":         plan.Textbook{Chunked: true, Stages: ones}.Check(),
		"-5 lanes":                         plan.Textbook{Batches: 1, Chunked: true, Stages: ones, Lanes: -5}.Check(),
		"copy_in takes 0 units: take 0.00": plan.Textbook{Batches: 1, Chunked: true}.Check(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if _, err := (plan.Textbook{}).Run(context.Background()); err == nil {
		t.Error("a plan without batches ran")
	}
	if _, err := (plan.Textbook{Chunked: true}).Run(context.Background()); err == nil {
		t.Error("a payload without chunks ran")
	}
}

func TestPlanStopsWhenTold(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := (plan.Textbook{Batches: 4, Stages: [3]float64{1, 1, 1}}).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
}

func TestPlanAsJSON(t *testing.T) {
	c, err := plan.Textbook{Batches: 2, Stages: [3]float64{1, 1, 1}}.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"stages":[1,1,1]`, `"slots":[["copy_in(batch 1)"],["copy_in(batch 2)","compute(batch 1)"],`, `"total":4,"total_unit":"time units"`, `"speedup":1.5`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the plan has no %s:\n%s", want, text)
		}
	}
}
