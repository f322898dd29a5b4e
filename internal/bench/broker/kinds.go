package broker

import (
	"time"

	"millrace/internal/bench"
	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// kind is a kind of worker. It has one row for each list of operators that it runs.
type kind struct {
	name  string
	shape shape               // of the input stream and its consumers
	ops   []operator.Operator // nil for a worker that computes nothing
	later bool                // the inputs arrive while the worker runs; it publishes them itself

	guarantee guarantee // of the results

	// foreign marks another program: its results are only counted, and its processor time is unknown.
	foreign bool

	// make creates the worker of one round. If took is not nil, it receives the time of each payload from received to
	// stored. Only workers in the latency rows need to call it.
	make func(took func(time.Duration)) worker
}

// operatorLists are the operators that Millrace and the worker in plain Go compute. Rows with another number of
// connections use the first list.
var operatorLists = []string{"crc32c", "crc32c,minhash"}

// The names of rows. To measure another worker, add a kind here and a line in rateEntries.
const (
	rowAsync     = "null-async"
	rowBatch     = "null-batch"
	rowAckAll    = "null-ackall"
	rowPinned    = "null-pinned"
	rowShared    = "millrace-shared"
	rowExclusive = "millrace-exclusive"
	rowPlain     = "go-worker"

	// Rows with another number of connections to the server: two, for inputs and for results, or one for both.
	rowSharedMore   = "millrace-shared-2"
	rowExclusiveOne = "millrace-exclusive-1"
)

// connections is a worker's number of connections to the server, by delivery mode. Workers that compute nothing have as
// many as the worker of their shape.
type connections struct{ shared, exclusive int }

// usualConnections are the worker's defaults.
var usualConnections = connections{shared: natsconn.DefaultConnections(false), exclusive: natsconn.DefaultConnections(true)}

// connectionsOf returns n connections for every delivery mode, or the defaults if n is 0.
func connectionsOf(n int) connections {
	if n == 0 {
		return usualConnections
	}
	return connections{shared: n, exclusive: n}
}

// nulls returns the workers that compute nothing.
func (n connections) nulls(session *bench.Session) []kind {
	b := batchBounds(session)
	return []kind{
		nullAsync,
		{name: rowBatch, make: storing(b, n.shared, false)},
		{name: rowAckAll, shape: partitioned, make: storing(b, n.exclusive, true)},
		{name: rowPinned, shape: pinned, make: storing(b, n.exclusive, true)},
	}
}

// nullAsync is the kind that computes nothing and stores each result separately.
var nullAsync = kind{name: rowAsync, make: func(took func(time.Duration)) worker { return &single{name: rowAsync, took: took} }}

// storing returns a function that creates workers that compute nothing and store results in batches.
func storing(b bounds, connections int, partitioned bool) func(func(time.Duration)) worker {
	return func(func(time.Duration)) worker {
		return &batched{bounds: b, connections: connections, partitioned: partitioned}
	}
}

// sharedDelivery returns the kind that runs Millrace with shared delivery.
func (n connections) sharedDelivery(session *bench.Session, ops []operator.Operator) kind {
	return kind{name: rowShared, ops: ops, make: func(took func(time.Duration)) worker {
		return newMillrace(session, ops, n.shared, took)
	}}
}

// exclusiveDelivery returns the kind that runs Millrace with exclusive delivery: each worker has its own partitions. It stores no
// commit markers.
func (n connections) exclusiveDelivery(session *bench.Session, ops []operator.Operator) kind {
	return n.guaranteed(session, ops, byID)
}

func newMillrace(session *bench.Session, ops []operator.Operator, n int, took func(time.Duration)) *millrace {
	return &millrace{
		devices: session.Devices, ops: ops, connections: n, took: took,
		config: func(d device.Info) streams.Config { return pipelineConfig(session, d, ops) },
	}
}

func inPlainGo(ops []operator.Operator) kind {
	return kind{name: rowPlain, ops: ops, make: func(took func(time.Duration)) worker {
		return &single{name: rowPlain, ops: ops, took: took}
	}}
}

// named returns a copy of the kind with another row name.
func (k kind) named(name string) kind {
	k.name = name
	return k
}

// The worker's default bounds of a batch, for a configuration without bounds.
const (
	batchBytes    = 4 << 20
	batchPayloads = 8192
)

// pipelineConfig returns the worker's configuration for a device.
func pipelineConfig(session *bench.Session, d device.Info, ops []operator.Operator) streams.Config {
	c := session.Pipeline(d, ops)
	c.Lanes = session.Lanes
	if c.BatchBytes == 0 {
		c.BatchBytes = batchBytes
	}
	if c.BatchPayloads == 0 {
		c.BatchPayloads = batchPayloads
	}
	return c
}

// batchBounds returns the bounds of the worker's batches. Workers without a device use them too.
func batchBounds(session *bench.Session) bounds {
	c := pipelineConfig(session, session.Devices[0].Info(), nil)
	return bounds{payloads: c.BatchPayloads, bytes: c.BatchBytes}
}

// row returns a kind's row with the fields that are known before it is measured.
func row(session *bench.Session, k kind, size int) report.Row {
	r := report.Row{Name: k.name, PayloadBytes: size, Operator: bench.Specs(k.ops)}
	if _, ours := k.make(nil).(*millrace); ours {
		r.Device, r.Lanes = deviceOf(session), session.Lanes
	}
	return r
}

// deviceOf names the device, or "all" for several.
func deviceOf(session *bench.Session) string {
	if len(session.Devices) > 1 {
		return "all"
	}
	return session.Devices[0].Info().ID
}
