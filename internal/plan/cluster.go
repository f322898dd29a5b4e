package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Cluster is a load for which Needs computes streams, servers, workers and GPUs.
type Cluster struct {
	Records      float64       // records per second, on average
	RecordBytes  float64       // average bytes of a record before compression
	MessageBytes float64       // bytes of records in a message before compression; a message holds at least one record
	Compression  float64       // bytes of records over bytes of their messages; 1 without compression
	ResultBytes  float64       // bytes in the result stream per record; negative: those of Operator in binary
	Replicas     int           // replicas of each stream, from 1 to 5
	Peak         float64       // load at peak over average load, at least 1
	Retention    time.Duration // time for which the servers keep inputs and results
	Operator     string        // one of Operators

	Figures map[string]float64 // values that replace figures, by name and in the figure's unit
}

// Needs is what a Cluster needs. All rates are those at peak. A gigabyte has 10^9 bytes.
type Needs struct {
	Records  float64 `json:"records_per_second"`
	Bytes    float64 `json:"record_gb_per_second"`
	Messages float64 `json:"messages_per_second"` // inputs, and as many results
	Inputs   float64 `json:"input_gb_per_second"` // after compression
	Results  float64 `json:"result_gb_per_second"`
	Stored   float64 `json:"stored_gb_per_second"` // inputs and results, with all replicas
	Replicas int     `json:"replicas"`

	Needs   []Need   `json:"needs"`
	Figures []Figure `json:"figures"`
}

// Need is the least number of one thing. Bound is the figure or the setting that decides the number.
type Need struct {
	Name   string `json:"name"`
	Number int64  `json:"number"`
	Bound  string `json:"bound"`
}

// Figure is a value that decides needs. The source of a measured figure is a page in docs and a commit.
type Figure struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Measured bool    `json:"measured"`
	Source   string  `json:"source"`
}

// measured is an operator whose rate on a GPU was measured.
type measured struct {
	name   string
	rate   float64 // GB/s
	result float64 // bytes per record in the result stream, in binary
	source string
}

var operators = []measured{
	{"crc32c", 33.4, 4, "benchmarks/operators.md (8a74b0d): pipeline, 1 MiB batches"},
	{"minhash", 47.4, 512, "benchmarks/text.md (d51a4f34): pipeline, 4 MiB batches"},
	{"minhash?hashes=260", 45.2, 1040, "benchmarks/text.md (3f35c917): pipeline, 4 MiB batches"},
	{"quality", 28.5, 152, "benchmarks/text.md (76a148cd): kernels, 16 MiB batches, mixed scripts"},
	{"neardup", 44.3, 24 + 131, "benchmarks/text.md (90f357d9): pipeline, 4 MiB batches"}, // the verdict and its share of the log
}

// Operators returns the names of the operators whose rates were measured.
func Operators() (names []string) {
	for _, o := range operators {
		names = append(names, o.name)
	}
	return names
}

// figures returns all figures for an operator, and for messages that are compressed or not. The first word of a name is the resource:
// the server that leads a stream, any server, a worker, one of its cores, or a GPU with its machine. Each resource except a GPU takes
// time for each message and time for each byte. Bytes of leaders and servers are those of messages. Bytes of workers, cores and GPUs are
// those of records.
func figures(compressed bool, o measured) []Figure {
	const (
		frames  = "benchmarks/frames.md (e9715bc): 256 B records, "
		single  = frames + "one per message"
		servers = "benchmarks/nats.md, several streams on one server: "
	)
	worker, cores, framed := 1.377, 2.66, frames+"512 KiB per message"
	if compressed {
		worker, cores, framed = 2.346, 9.02, framed+", zstd about 3:1"
	}
	if o.name == "neardup" {
		worker, cores, framed = worker*0.861, cores*3.2/2.3, framed+"; times neardup over crc32c, benchmarks/text.md (75de7c44)"
	}
	return []Figure{
		{"leader-messages", 116_122, "messages/s", true, single},
		{"leader-bytes", 1.377, "GB/s", true, frames + "512 KiB per message"},
		{"leader-share", 0.73, "times", true, "benchmarks/nats-cpu.md (d1a2286): 256 B records, three replicas over one"},
		{"server-messages", 344_000, "messages/s", true, servers + "inputs of 256 B and their results"},
		{"server-bytes", 4.7, "GB/s", true, servers + "inputs of 512 KiB"},
		{"server-network", 2.1, "GB/s", false, "ASSUMED: two thirds of 25 Gbit/s, in each direction"},
		{"worker-messages", 116_122, "messages/s", true, single},
		{"worker-bytes", worker, "GB/s", true, framed},
		{"core-messages", 116_122 / 2.82, "messages/s", true, single},
		{"core-bytes", worker / cores, "GB/s", true, framed},
		{"gpu-bytes", o.rate, "GB/s", true, o.source},
		{"gpu-cores", 16, "cores", false, "ASSUMED: a machine with one GPU"},
		{"gpu-network", 8.3, "GB/s", false, "ASSUMED: a machine with one GPU: two thirds of 100 Gbit/s, in each direction"},
	}
}

// Needs computes what the cluster needs. The error joins the problems of the load.
func (c Cluster) Needs() (Needs, error) {
	at := slices.IndexFunc(operators, func(o measured) bool { return o.name == c.Operator })
	if at < 0 {
		return Needs{}, fmt.Errorf("operator %q has no measured rate: take %s, or measure yours with worker bench and replace gpu-bytes and the bytes per result",
			c.Operator, strings.Join(Operators(), ", "))
	}
	if c.ResultBytes < 0 {
		c.ResultBytes = operators[at].result
	}
	list := figures(c.Compression > 1, operators[at])
	values, err := c.replace(list)
	if err := errors.Join(c.check(), err); err != nil {
		return Needs{}, err
	}
	n := Needs{Records: c.Records * c.Peak, Replicas: c.Replicas, Figures: list}
	n.Bytes = n.Records * c.RecordBytes / 1e9
	n.Messages = n.Records / max(1, c.MessageBytes/c.RecordBytes)
	n.Inputs, n.Results = n.Bytes/c.Compression, n.Records*c.ResultBytes/1e9
	n.Stored = float64(c.Replicas) * (n.Inputs + n.Results)
	n.Needs = append(n.machines(values), need("disk, TB", bound{"retention", n.Stored / c.Peak * c.Retention.Seconds() / 1e3}))
	return n, nil
}

// machines returns the streams, servers, workers and GPUs for the figures with the given values.
func (n Needs) machines(values map[string]float64) []Need {
	// both bounds a resource that takes time for each message and for each byte.
	both := func(resource string, messages, bytes float64) bound {
		m, b, larger := messages/values[resource+"-messages"], bytes/values[resource+"-bytes"], "-bytes"
		if m > b {
			larger = "-messages"
		}
		return bound{resource + larger, m + b}
	}
	per := func(figure string, amount float64) bound { return bound{figure, amount / values[figure]} }
	share, replicas := 1.0, float64(n.Replicas) // share of a leader's rate that remains with replicas
	if n.Replicas > 1 {
		share = values["leader-share"]
	}
	cores := need("worker cores", both("core", n.Messages, n.Bytes))
	return []Need{
		need("input streams", both("leader", n.Messages/share, n.Inputs/share)),
		need("result streams", both("leader", n.Messages/share, n.Results/share)),
		need("servers", per("server-network", n.Stored), both("server", 2*replicas*n.Messages, n.Stored), bound{"replicas", replicas}),
		need("workers", both("worker", n.Messages, n.Bytes)),
		cores,
		need("GPUs", per("gpu-bytes", n.Bytes), per("gpu-cores", float64(cores.Number)), per("gpu-network", max(n.Inputs, n.Results))),
	}
}

// bound is the least number of a thing for one reason, with its fraction.
type bound struct {
	reason string
	number float64
}

// need returns the need for the largest bound. Of equal bounds, the first one decides.
func need(name string, bounds ...bound) Need {
	b := slices.MaxFunc(bounds, func(a, b bound) int { return cmp.Compare(a.number, b.number) })
	return Need{name, int64(math.Ceil(b.number - 1e-9)), b.reason}
}

// replace replaces figures of the list by those of the cluster. It returns all values by name.
func (c Cluster) replace(list []Figure) (map[string]float64, error) {
	values := map[string]float64{}
	for i := range list {
		f := &list[i]
		if v, ok := c.Figures[f.Name]; ok {
			f.Value, f.Measured, f.Source = v, false, "yours"
		}
		values[f.Name] = f.Value
	}
	for _, name := range slices.Sorted(maps.Keys(c.Figures)) {
		if v, known := values[name]; !known {
			return nil, fmt.Errorf("there is no figure %q: take one of %s", name, strings.Join(slices.Sorted(maps.Keys(values)), ", "))
		} else if !(v >= 1e-3 && v <= 1e12) {
			return nil, fmt.Errorf("the figure %s is %v: take 0.001 to 1e12", name, v)
		}
	}
	return values, nil
}

// check returns an error that joins the values that are out of range.
func (c Cluster) check() error {
	var errs []error
	for _, v := range []struct {
		name             string
		value, low, high float64
	}{
		{"records per second", c.Records, 1e-3, 1e10},
		{"bytes per record", c.RecordBytes, 1, 64 << 20},
		{"bytes per message", c.MessageBytes, 1, 64 << 20},
		{"compression", c.Compression, 1, 1000},
		{"bytes per result", c.ResultBytes, 0, 64 << 20},
		{"replicas", float64(c.Replicas), 1, 5},
		{"peak", c.Peak, 1, 100},
		{"hours of retention", c.Retention.Hours(), 0, 87600},
	} {
		if !(v.value >= v.low && v.value <= v.high) {
			errs = append(errs, fmt.Errorf("the value of %s is %v: take %s to %s", v.name, v.value, number(v.low), number(v.high)))
		}
	}
	return errors.Join(errs...)
}
