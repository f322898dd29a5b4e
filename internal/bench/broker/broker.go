// Package broker is the suite `nats` of `worker bench`. It measures the whole path from one JetStream stream to
// another, for three kinds of workers: Millrace, workers of the same shape that compute nothing, and a worker in plain
// Go that computes the same. Only the command calls it.
//
// Start with Bench and rates.go. A round of a row recreates both streams, fills the input stream with fresh random
// payloads, and then starts the worker. The time runs from before the first delivery until every result is stored and
// the server has every acknowledgement. After that the results are read back and checked.
package broker

import (
	"context"
	"time"

	"millrace/internal/bench"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natsconn"
)

// suiteName is the name of the suite, and the group of its rows.
const suiteName = "nats"

// Options selects the server and its configuration.
type Options struct {
	// Server is a running server. Without URL the bench starts one.
	Server natsconn.Server

	// API is where the JetStream of a running server is.
	API jsapi.API

	// Program runs a server that the bench starts, in its own process. It is a command that takes additional arguments, reads them with
	// ServerOptions and calls ServeUntilEOF. Without it the server runs in this process, and
	// memory and processor time include the server's.
	Program []string

	// Connections is the number of connections that every worker opens to the server. Rows with a number in their name
	// ignore it. 0: the worker's default.
	Connections int

	// External is a program to compare with, and its arguments: see rowExternal. Empty for none.
	External []string

	// Memory keeps the streams in memory instead of files.
	Memory bool
}

// Bench creates the suite. It starts its server when its first row is measured.
type Bench struct {
	o      Options
	server *server // nil before the first row

	// Tests change these.
	withoutBatches bool          // pretend that the server can't store batches
	memoryLeast    int           // minimum number of payloads per round of the memory rows
	frameBytes     int           // bytes of a frame before compression
	pollFirst      time.Duration // pause between two looks for a round's first delivery
}

// New returns a Bench. It starts nothing.
func New(o Options) *Bench {
	return &Bench{o: o, memoryLeast: memoryLeast, frameBytes: usualFrameBytes, pollFirst: pollFirst}
}

// Suite returns the suite.
func (b *Bench) Suite() bench.Suite {
	return bench.Suite{
		Name:    suiteName,
		Columns: columns,
		Sizes:   bench.Sizes{Of: "payload", Least: 1, Most: embedded.MaxPayload - maxHeader},
		Experiments: []bench.Experiment{
			{Rows: rateEntries(), Run: b.runRates},
			{Rows: onceEntries, Run: b.runOnce},
			{Rows: clusterEntries, Run: b.runCluster},
			{Rows: b.frameEntries(), Run: b.runFrames},
			{Rows: latencyEntries, Run: b.runLatency},
			{Rows: memoryEntries, Run: b.runMemory},
		},
	}
}

// maxHeader is an upper bound for the subject and the headers of an input or a result, in bytes. The server counts them
// as part of the payload.
const maxHeader = 4 << 10

// open starts the server or connects to it, once, and notes where it runs.
func (b *Bench) open(ctx context.Context, session *bench.Session) (*server, error) {
	if b.server == nil {
		s, err := newServer(ctx, b.o)
		if err != nil {
			return nil, err
		}
		s.batches, s.pollFirst = !b.withoutBatches, b.pollFirst
		b.server = s
	}
	b.server.note(session)
	return b.server, nil
}

// Close removes the streams and stops the server if the bench has started one. It may be called after any failure.
func (b *Bench) Close() error {
	if b.server == nil {
		return nil
	}
	return b.server.close()
}
