package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"millrace/internal/console"
	"millrace/internal/plan"
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

func TestPlanOfACluster(t *testing.T) {
	load := []string{"plan", "--cluster", "--records", "1e6", "--record-bytes", "2048"}
	call(t, nil, append(load, "--figure", "gpu-cores=64,server-network=8.3")...).want(t, exitDone,
		"At peak: 3,000,000 records/s (6.14 GB/s) in 11,719 messages/s.\n", " 8.3 GB/s        yours\n")
	n := neededBy(t, append(load, "--peak", "1")...)
	if n.Records != 1e6 || len(n.Needs) != 7 || len(n.Figures) != 13 {
		t.Errorf("the plan in JSON is %+v", n)
	}
}

// neededBy returns what the command prints with --json.
func neededBy(t *testing.T, args ...string) (n plan.Needs) {
	t.Helper()
	r := call(t, nil, append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.out), &n); err != nil {
		t.Fatalf("%v:\n%s%s", err, r.out, r.errors)
	}
	return n
}

// TestPageOfCapacity runs the command of docs/capacity.md. It compares the output, and the numbers with other flags.
func TestPageOfCapacity(t *testing.T) {
	page, err := os.ReadFile("../../docs/capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```\n\\$ worker (plan [^\n]*)\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("docs/capacity.md shows no command")
	}
	load := strings.Fields(string(shown[1]))
	if got := call(t, nil, load...).out; got != string(shown[2]) {
		t.Errorf("docs/capacity.md shows\n%s, and the command prints\n%s", shown[2], got)
	}
	names := []string{"input streams", "result streams", "servers", "workers", "worker cores", "GPUs", "disk, TB"}
	rows := regexp.MustCompile("(?m)^\\| (?:none|`(--.*?)`) \\| (\\d.*) \\|$").FindAllSubmatch(page, -1)
	if len(rows) < 2 || !strings.Contains(string(page), "| flags | "+strings.Join(names, " | ")+" |\n") {
		t.Fatalf("docs/capacity.md has %d rows of flags for the columns %q", len(rows), names)
	}
	for _, row := range rows {
		numbers := make([]string, len(names))
		for i, need := range neededBy(t, append(load[:len(load):len(load)], strings.Fields(string(row[1]))...)...).Needs {
			if numbers[i] = console.Count(need.Number); need.Name != names[i] {
				t.Fatalf("need %d is %q, want %q", i, need.Name, names[i])
			}
		}
		if got := strings.Join(numbers, " | "); got != string(row[2]) {
			t.Errorf("docs/capacity.md has %s with %q, and the command prints %s", row[2], row[1], got)
		}
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
		{"--records 5", "--records is only for --cluster"},
		{"--cluster", "--cluster needs --records and --record-bytes"},
		{"--cluster --records 5 --record-bytes 6 --lanes 2", "--lanes is not for --cluster"},
		{"--cluster --records 5 --record-bytes 0", "bytes per record is 0: take 1 to"},
		{"--cluster --records 5 --record-bytes 6 --operator mix", `operator "mix" has no measured rate: take crc32c, minhash,`},
		{"--cluster --records 5 --record-bytes 6 --figure gpu-cores=many", `--figure has gpu-cores="many": give a number`},
		{"--cluster --records 5 --record-bytes 6 --figure gpu-cores", "--figure"},
		{"--cluster --records 5 --record-bytes 6 --figure disks=9", `there is no figure "disks": take one of core-bytes,`},
	} {
		if r := call(t, nil, append([]string{"plan"}, strings.Fields(c.args)...)...); r.code != exitUsage || !strings.Contains(r.errors, c.want) {
			t.Errorf("plan %s: status %d, %q; want %d and %q", c.args, r.code, r.errors, exitUsage, c.want)
		}
	}
}
