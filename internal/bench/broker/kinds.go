package broker

import (
	"millrace/internal/bench"
	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// kind is a kind of worker: a row, or several where it runs several lists of operators.
type kind struct {
	name  string
	shape shape               // of the input stream and its consumers
	ops   []operator.Operator // nil for one that computes nothing
	later bool                // the inputs come while it runs, by itself
	make  func() mover        // one round's
}

// operatorLists are what Millrace and the worker in plain Go compute. Rows of another number of connections have the first.
var operatorLists = []string{"crc32c", "crc32c,minhash"}

// The names of rows. A worker of another shape is a further kind here and a line in rateEntries.
const (
	rowAsync     = "null-async"
	rowBatch     = "null-batch"
	rowAckAll    = "null-ackall"
	rowPinned    = "null-pinned"
	rowShared    = "millrace-shared"
	rowExclusive = "millrace-exclusive"
	rowPlain     = "go-worker"

	// The same with another number of connections to the server: two, one for inputs and one for results, and one for all.
	rowSharedMore   = "millrace-shared-2"
	rowExclusiveOne = "millrace-exclusive-1"
)

// links is how many connections to the server a worker has, by its delivery. Those that compute nothing have as many as the worker
// of their shape.
type links struct{ shared, exclusive int }

// usualLinks are what the worker has by default.
var usualLinks = links{shared: natsconn.DefaultConnections(false), exclusive: natsconn.DefaultConnections(true)}

// linksOf are n connections whatever the delivery; with 0 the usual ones.
func linksOf(n int) links {
	if n == 0 {
		return usualLinks
	}
	return links{shared: n, exclusive: n}
}

// nulls are the workers that compute nothing.
func (l links) nulls(t *bench.Track) []kind {
	b := batchBounds(t)
	return []kind{
		{name: rowAsync, make: func() mover { return &nullAsync{} }},
		{name: rowBatch, make: func() mover { return &batched{bounds: b, links: l.shared} }},
		{name: rowAckAll, shape: parted, make: func() mover { return &batched{bounds: b, links: l.exclusive, partitioned: true} }},
		{name: rowPinned, shape: pinned, make: func() mover { return &batched{bounds: b, links: l.exclusive, partitioned: true} }},
	}
}

// together is Millrace with shared delivery.
func (l links) together(t *bench.Track, ops []operator.Operator) kind {
	return kind{name: rowShared, ops: ops, make: func() mover { return newMillrace(t, ops, l.shared) }}
}

// alone is Millrace where each worker has partitions to itself.
func (l links) alone(t *bench.Track, ops []operator.Operator) kind {
	return kind{name: rowExclusive, shape: pinned, ops: ops, make: func() mover {
		m := newMillrace(t, ops, l.exclusive)
		m.exclusive = true
		return m
	}}
}

// over is such a kind with so many connections, as a row of its own.
func over(k kind, links int, name string) kind {
	usual := k.make
	k.name, k.make = name, func() mover {
		m := usual().(*millrace) // what together and alone make
		m.links = links
		return m
	}
	return k
}

func newMillrace(t *bench.Track, ops []operator.Operator, links int) *millrace {
	return &millrace{
		devices: t.Devices(), ops: ops, links: links,
		config: func(d device.Info) streams.Config { return pipelineConfig(t, d, ops) },
	}
}

func inPlainGo(ops []operator.Operator) kind {
	return kind{name: rowPlain, ops: ops, make: func() mover { return &plain{ops: ops} }}
}

// The worker's bounds of a batch by default, for a configuration that has none.
const (
	batchBytes    = 4 << 20
	batchPayloads = 8192
)

// pipelineConfig is what the worker runs on a device.
func pipelineConfig(t *bench.Track, d device.Info, ops []operator.Operator) streams.Config {
	c := t.Pipeline(d, ops)
	if c.BatchBytes == 0 {
		c.BatchBytes = batchBytes
	}
	if c.BatchPayloads == 0 {
		c.BatchPayloads = batchPayloads
	}
	return c
}

// batchBounds are the bounds of the worker's batches, which workers without a device keep too.
func batchBounds(t *bench.Track) bounds {
	c := pipelineConfig(t, t.Devices()[0].Info(), nil)
	return bounds{payloads: c.BatchPayloads, bytes: c.BatchBytes}
}

// row is what a kind's row says beside its figures.
func row(t *bench.Track, k kind, size int) report.Row {
	r := report.Row{Name: k.name, PayloadBytes: size, Operator: specs(k.ops)}
	if _, ours := k.make().(*millrace); ours {
		r.Device, r.Lanes = deviceOf(t), pipelineConfig(t, t.Devices()[0].Info(), nil).Lanes
	}
	return r
}

// deviceOf names the device, or all.
func deviceOf(t *bench.Track) string {
	if len(t.Devices()) > 1 {
		return "all"
	}
	return t.Devices()[0].Info().ID
}

// parse reads a list of operators that this package names.
func parse(list string) []operator.Operator {
	ops, err := operator.ParseList(list)
	if err != nil {
		panic("broker: " + err.Error())
	}
	return ops
}
