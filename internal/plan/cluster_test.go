package plan_test

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/operator"
	"millrace/internal/plan"
)

// petabyte is 1 PB of documents of 2 KiB per day, with the defaults of the command.
func petabyte() plan.Cluster {
	return plan.Cluster{
		Records: 1e15 / 86400 / 2048, RecordBytes: 2048, MessageBytes: 512 << 10, Compression: 1, ResultBytes: -1, Replicas: 3, Peak: 3,
		Retention: 24 * time.Hour, Operator: "minhash",
	}
}

// needs returns the needs of a cluster by their names.
func needs(t *testing.T, c plan.Cluster) map[string]plan.Need {
	t.Helper()
	n, err := c.Needs()
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]plan.Need{}
	for _, need := range n.Needs {
		list[need.Name] = need
	}
	return list
}

func TestPetabyte(t *testing.T) {
	compressed, bare, single := petabyte(), petabyte(), petabyte()
	compressed.Compression, bare.ResultBytes, single.MessageBytes = 4, 0, 1
	for _, c := range []struct {
		name string
		load plan.Cluster
		want map[string]plan.Need
	}{
		{"the defaults", petabyte(), map[string]plan.Need{
			"input streams": {Number: 36, Bound: "leader-bytes"}, "result streams": {Number: 10, Bound: "leader-bytes"},
			"servers": {Number: 63, Bound: "server-network"}, "workers": {Number: 26, Bound: "worker-bytes"},
			"GPUs": {Number: 5, Bound: "gpu-cores"}, "disk, TB": {Number: 3750, Bound: "retention"},
		}},
		{"compressed", compressed, map[string]plan.Need{
			"input streams": {Number: 10, Bound: "leader-bytes"}, "servers": {Number: 25, Bound: "server-network"}, "workers": {Number: 16, Bound: "worker-bytes"},
		}},
		{"results without bytes", bare, map[string]plan.Need{
			"servers": {Number: 50, Bound: "server-network"}, "result streams": {Number: 1, Bound: "leader-messages"}, "disk, TB": {Number: 3000, Bound: "retention"},
		}},
		{"one record per message", single, map[string]plan.Need{
			"input streams": {Number: 235, Bound: "leader-messages"}, "servers": {Number: 324, Bound: "server-messages"}, "worker cores": {Number: 479, Bound: "core-messages"},
		}},
	} {
		got := needs(t, c.load)
		for name, want := range c.want {
			if want.Name = name; got[name] != want {
				t.Errorf("%s: %+v, want %+v", c.name, got[name], want)
			}
		}
	}
}

// TestLeadersAgreeWithMeasurements checks the rates that the plan computes for one pair of streams against other runs of docs/benchmarks/nats.md
// (exclusive) and of docs/benchmarks/frames.md (zstd, divided by the ratio to the null worker).
func TestLeadersAgreeWithMeasurements(t *testing.T) {
	for _, c := range []struct{ bytes, compression, rate float64 }{
		{256, 1, 130_538}, {2 << 10, 1, 103_047}, {64 << 10, 1, 14_150}, {64 << 10, 1, 20_000}, {512 << 10, 1, 2_582}, {512 << 10, 3, 9_162_730 / 2048 / 0.533},
	} {
		const pairs = 1000
		got := needs(t, plan.Cluster{
			Records: c.rate * pairs, RecordBytes: c.bytes, MessageBytes: c.bytes, Compression: c.compression, Replicas: 1, Peak: 1, Operator: "crc32c",
		})["input streams"].Number
		if ratio := float64(got) / pairs; math.Abs(ratio-1) > 0.25 {
			t.Errorf("%v B: one pair moved %v messages/s, and the plan needs %v input streams for it", c.bytes, c.rate, ratio)
		}
	}
}

// TestSmallLoads checks that a load of one record per second needs one of each thing, and as many servers as replicas.
func TestSmallLoads(t *testing.T) {
	c := petabyte()
	c.Records = 1
	got := needs(t, c)
	if want := (plan.Need{Name: "servers", Number: 3, Bound: "replicas"}); got["servers"] != want {
		t.Errorf("%+v, want %+v", got["servers"], want)
	}
	for _, name := range []string{"input streams", "result streams", "workers", "worker cores", "GPUs", "disk, TB"} {
		if got[name].Number != 1 {
			t.Errorf("%s: %d, want 1", name, got[name].Number)
		}
	}
}

// TestResultBytes checks the bytes of the operators' results. The result of neardup also has a part of the state's log.
func TestResultBytes(t *testing.T) {
	for _, name := range plan.Operators() {
		c := petabyte()
		c.Operator = name
		ops, err := operator.ParseList(name)
		if err != nil {
			t.Fatal(err)
		}
		want := float64(ops[0].Stride())
		if name == "neardup" {
			want += 131
		}
		n, err := c.Needs()
		if got := n.Results * 1e9 / n.Records; err != nil || math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: %v bytes per result, %v, want %v", name, got, err, want)
		}
	}
}

func TestFiguresAreReplaced(t *testing.T) {
	c := petabyte()
	c.Figures = map[string]float64{"server-network": 8.3, "gpu-cores": 64}
	n, err := c.Needs()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range n.Figures {
		if v, ok := c.Figures[f.Name]; ok && (f.Value != v || f.Measured || f.Source != "yours") {
			t.Errorf("the replaced figure is %+v", f)
		}
	}
	if got := needs(t, c); got["servers"].Bound != "server-bytes" || got["GPUs"].Bound != "gpu-network" {
		t.Errorf("%+v and %+v, want the bounds server-bytes and gpu-network", got["servers"], got["GPUs"])
	}
}

func TestLoadsThatMakeNoSense(t *testing.T) {
	for want, change := range map[string]func(*plan.Cluster){
		"records per second is 0: take 0.001 to": func(c *plan.Cluster) { c.Records = 0 },
		"records per second is +Inf":             func(c *plan.Cluster) { c.Records = math.Inf(1) },
		"bytes per record is NaN":                func(c *plan.Cluster) { c.RecordBytes = math.NaN() },
		"bytes per message is 0":                 func(c *plan.Cluster) { c.MessageBytes = 0 },
		"compression is 0.5: take 1 to 1000":     func(c *plan.Cluster) { c.Compression = 0.5 },
		"replicas is 6: take 1 to 5":             func(c *plan.Cluster) { c.Replicas = 6 },
		"peak is 0.5":                            func(c *plan.Cluster) { c.Peak = 0.5 },
		"hours of retention is -1":               func(c *plan.Cluster) { c.Retention = -time.Hour },
		`operator "mix" has no measured rate`:    func(c *plan.Cluster) { c.Operator = "mix" },
		`there is no figure "disk"`:              func(c *plan.Cluster) { c.Figures = map[string]float64{"disk": 1} },
		"the figure gpu-cores is 0: take 0.001":  func(c *plan.Cluster) { c.Figures = map[string]float64{"gpu-cores": 0} },
	} {
		c := petabyte()
		change(&c)
		if _, err := c.Needs(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func TestNeedsAsJSON(t *testing.T) {
	n, err := petabyte().Needs()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(n)
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"figures", "input_gb_per_second", "messages_per_second", "needs", "record_gb_per_second", "records_per_second", "replicas", "result_gb_per_second",
		"stored_gb_per_second",
	}
	if got := slices.Sorted(maps.Keys(decoded)); err != nil || !slices.Equal(got, want) {
		t.Errorf("the members are %q, want %q", got, want)
	}
	if want := `{"name":"servers","number":63,"bound":"server-network"}`; !strings.Contains(string(text), want) {
		t.Errorf("the plan has no %s:\n%s", want, text)
	}
}
