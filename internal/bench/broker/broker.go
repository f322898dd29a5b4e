// Package broker implements the suite `nats` of `worker bench`. It measures the whole path from one JetStream stream to
// another. The workers are Millrace with shared and exclusive delivery, a null worker that computes nothing, and a
// worker in plain Go with the same operators.
//
// Start reading at Bench. rows.go defines the rows and their comparisons. text.go and neardup.go define the rows with text, and replay.go
// defines the row with a state's log. round.go measures one round of a row. pair.go creates the streams of a round, content.go creates
// their messages, and expected.go checks their results. The workers are in plain.go and millrace.go, and the server is in server.go.
//
// A round creates a pair of streams, fills the input stream with new random payloads, and starts the worker. The
// measured time starts before the first delivery. It ends when every result is stored and the server has received every
// acknowledgement. Then the round reads all results back and checks them.
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
	// Server is a running server. If its URL is empty, the bench starts a server.
	Server natsconn.Server

	// API selects the JetStream API of a running server.
	API jsapi.API

	// Program is the command of a server process. It receives the folder for the server's files as an additional
	// argument and calls ServeUntilEOF. The process is separate, so processor times don't include the server's.
	Program []string

	// Connections is the number of connections from every worker to the server. 0 means the worker's default.
	Connections int

	// Memory keeps the streams in memory instead of files.
	Memory bool
}

// Bench runs the suite. It starts the server when the first row is measured.
type Bench struct {
	o      Options
	server *server // nil before the first row

	// Tests change these.
	forms        []form        // forms of the rows with frames
	textForms    []textForm    // forms of the rows with JSON lines
	frameBytes   int           // bytes of a frame before compression
	stateRecords int           // number of records in a generation of a state
	pollFirst    time.Duration // pause between two checks for a round's first delivery
}

// New returns a Bench without starting the server.
func New(o Options) *Bench {
	return &Bench{o: o, forms: forms, textForms: textForms, frameBytes: usualFrameBytes, stateRecords: stateRecords, pollFirst: pollFirst}
}

// Suite returns the suite for `worker bench`.
func (b *Bench) Suite() bench.Suite {
	return bench.Suite{
		Name:    suiteName,
		Columns: columns,
		Sizes:   bench.Sizes{Of: "payload", Min: 1, Max: embedded.MaxPayload - maxHeader},
		Experiments: []bench.Experiment{
			{Rows: rateEntries, Run: b.onServer(b.runRates)},
			{Rows: frameEntries, Run: b.onServer(b.runFrames)},
			{Rows: pairsEntries, Run: b.onServer(b.runPairs)},
			{Rows: textEntries, Run: b.onServer(b.runText)},
			{Rows: duplicatesEntries, Run: b.onServer(b.runDuplicates)},
			{Rows: replayEntries, Run: b.onServer(b.runReplay)},
			{Rows: latencyEntries, Run: b.onServer(b.runLatency)},
		},
	}
}

// maxHeader is an upper bound for the subject and headers of an input or a result, in bytes. The server counts them as
// part of the message's payload.
const maxHeader = 4 << 10

// onServer returns an experiment that passes the server to measure. The first experiment starts the server or connects
// to it. Each experiment adds a note about the server's location to its table, because the location affects all figures.
func (b *Bench) onServer(measure func(context.Context, *bench.Session, *server) error) func(context.Context, *bench.Session) error {
	return func(ctx context.Context, session *bench.Session) error {
		if b.server == nil {
			s, err := newServer(ctx, b.o)
			if err != nil {
				return err
			}
			s.pollFirst = b.pollFirst
			b.server = s
		}
		session.Note("%s", b.server.where)
		if n := b.o.Connections; n != 0 {
			session.Note("Every worker has %d connections to the server.", n)
		}
		return measure(ctx, session, b.server)
	}
}

// Close removes the streams and stops the server if the bench has started one. It may be called after any failure.
func (b *Bench) Close() error {
	if b.server == nil {
		return nil
	}
	return b.server.close()
}
