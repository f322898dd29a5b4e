// Package broker measures the whole way from stream to stream: Millrace between two JetStream streams, beside workers of
// the same shape that compute nothing, and beside one that computes the same in plain Go. It is the group nats of
// `worker bench`.
//
// A round of a row makes both streams anew, fills the input stream with fresh random payloads, and only then lets the
// worker under measurement run. The time is from before the first delivery until every result is stored and the server has
// every acknowledgement. Then the results are read back and checked, with the clock stopped.
package broker

import (
	"context"

	"millrace/internal/bench"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natsconn"
)

// group is the name of the rows' group.
const group = "nats"

// Options says where the streams are.
type Options struct {
	// Server is a running server. Without URL the bench starts one.
	Server natsconn.Server

	// Program runs that server as a process of its own: a command that takes the folder of the server's files as one more
	// argument and does what ServeUntilEOF does. Without it the server is in this process, and memory and processor time are
	// those of both.
	Program []string

	// Connections is how many to the server every worker has, but for those in whose rows' names a number is; 0 for as many as
	// the worker has by default.
	Connections int

	// Memory has the streams in memory; otherwise they are files.
	Memory bool

	// Dir is where the server that the bench starts keeps its files; empty for a folder of its own under the system's
	// folder for temporary files. Close removes that, and leaves a Dir that was named.
	Dir string
}

// Bench is the group. It starts its server when its first row is measured.
type Bench struct {
	o    Options
	site *site // nil before the first row

	// What tests have otherwise.
	withoutBatches bool // as if the server could store no batches
	memoryLeast    int  // payloads of a round of the rows on memory, at least
}

// New makes the group. Nothing is started yet.
func New(o Options) *Bench { return &Bench{o: o, memoryLeast: memoryLeast} }

// Guest is the group as `worker bench` takes it in.
func (b *Bench) Guest() bench.Guest {
	return bench.Guest{
		Group:    group,
		Columns:  columns,
		MinBytes: 1, MaxBytes: embedded.MaxPayload - maxHeader,
		Experiments: []bench.GuestExperiment{
			{Rows: rateEntries(), Run: b.runRates},
			{Rows: latencyEntries, Run: b.runLatency},
			{Rows: memoryEntries, Run: b.runMemory},
		},
	}
}

// maxHeader is more than the subject and the headers of an input or a result take, in bytes. The server counts them
// as part of the payload.
const maxHeader = 4 << 10

// open starts or reaches the server, once.
func (b *Bench) open(ctx context.Context) (*site, error) {
	if b.site != nil {
		return b.site, nil
	}
	s, err := newSite(ctx, b.o)
	if err != nil {
		return nil, err
	}
	s.batches = !b.withoutBatches
	b.site = s
	return s, nil
}

// Close removes the streams and stops the server, if there was one. It may be called whatever became of the rows.
func (b *Bench) Close() error {
	if b.site == nil {
		return nil
	}
	return b.site.close()
}
