package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPlanShowsSlotsWithoutAndWithOverlap(t *testing.T) {
	r := call(t, nil, "plan", "--batches", "4")
	r.want(t, exitDone, "t=0: copy_in(batch 1)\n", "Total: 12 time units\n",
		"t=2: copy_in(batch 3) | compute(batch 2) | copy_out(batch 1)\n", "Total: 6 time units\n")
	if !strings.HasSuffix(r.out, "\nSpeedup: 2.00x\n") || r.errors != "" {
		t.Errorf("the plan does not end with the speedup:\n%s%s", r.out, r.errors)
	}
	if plain := call(t, nil, "plan"); plain.out != r.out {
		t.Errorf("without flags the plan differs:\n%s", plain.out)
	}
}

func TestPlanWithFlags(t *testing.T) {
	call(t, nil, "plan", "--stages", "2,3,1", "--batches", "3").want(t, exitDone, "Total: 18 time units", "Total: 12 time units", "Speedup: 1.50x")
	call(t, nil, "plan", "--lanes", "1").want(t, exitDone, "Pipelined, 1 lane", "Speedup: 1.00x")
	call(t, nil, "plan", "--model", "chunks", "--chunks", "4").want(t, exitDone, "Total: 3 T\n", "Total: 1.5 T\n", "Speedup: 2.00x")
	var c struct {
		Pipelined struct {
			Slots [][]string
			Total float64
		}
		Speedup float64
	}
	r := call(t, nil, "plan", "--json")
	if err := json.Unmarshal([]byte(r.out), &c); err != nil {
		t.Fatalf("%v:\n%s", err, r.out)
	}
	if c.Speedup != 2 || c.Pipelined.Total != 6 || len(c.Pipelined.Slots) != 6 || c.Pipelined.Slots[0][0] != "copy_in(batch 1)" {
		t.Errorf("the plan in JSON is %+v", c)
	}
}

func TestBadUsageOfPlan(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--batches 0", "0 batches: take 1 to 1000"},
		{"--batches many", "batches"},
		{"--lanes -1", "-1 lanes"},
		{"--stages 1,2", "give three numbers"},
		{"--stages 1,x,2", `"x" is not a number`},
		{"--stages 1,0,2", "compute takes 0 units"},
		{"--model rows", "use batches or chunks"},
		{"--chunks 3", "--chunks is only for --model chunks"},
		{"--model chunks --batches 3", "use --chunks"},
		{"--model chunks --chunks 0", "0 chunks: take 1 to 1000"},
		{"extra", "takes flags only"},
	} {
		if r := call(t, nil, append([]string{"plan"}, strings.Fields(c.args)...)...); r.code != exitUsage || !strings.Contains(r.errors, c.want) {
			t.Errorf("plan %s: status %d, %q; want %d and %q", c.args, r.code, r.errors, exitUsage, c.want)
		}
	}
}
