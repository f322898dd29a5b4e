// Package audit proves from the streams alone that each stored input has exactly one outcome: a result, a dead letter, or that it is still
// pending. The command `worker audit` and the fault tests use it. Start reading at Auditor.Run, then judge.at.
//
// An audit makes no consumer on the input stream, because the server may remove inputs when a consumer of a stream with retention by interest
// is removed (adr/0048). It reads single messages of that stream, and only those about which nothing else can tell. It reads the streams of
// results and dead letters with temporary consumers that deliver only headers.
//
// Workers and publishers may run meanwhile. The order of the reads makes that safe:
//
//  1. The end of the input stream. Later inputs don't count.
//  2. All outcomes up to the end of their streams. Most inputs have one then.
//  3. The state of the input stream and of its consumers.
//  4. The outcomes that were stored since step 2. A worker acknowledges an input only after its outcome is stored, and inputs are
//     removed only after they are acknowledged. So every input that was acknowledged or removed in step 3 has its outcome now, or none at all.
//  5. Those inputs without an outcome for which the state of step 3 doesn't decide, one by one: their subject says which consumer they belong
//     to. One that is gone may have been settled since step 4.
//  6. The outcomes that were stored since step 4, because they decide about inputs that are gone.
//
// The outcomes are kept in one byte for each sequence, in pages of 65,536: about 100 MB for 100 million inputs. There are at most 4096 pages
// (268 million inputs). Sequences of which no outcome is stored take nothing.
package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/topology"
)

// Auditor audits the inputs of one deployment.
type Auditor struct {
	JS       jetstream.JetStream
	Topology topology.Topology // names of the streams and consumers, prefixes, subjects and delivery mode of the deployment

	From, To     uint64    // sequences of the first and the last input; 0: the stream's first ever, and the last when the audit begins
	Since, Until time.Time // inputs that were stored from Since on and before Until; zero: no bound
	Limit        int       // how many findings of each kind the report names
}

// Run audits. The report is complete only without an error.
func (a *Auditor) Run(ctx context.Context) (*Report, error) {
	began := time.Now()
	in := &inputs{js: a.JS, topology: a.Topology}
	if err := in.read(ctx); err != nil {
		return nil, err
	}
	span, err := a.span(ctx, in)
	if err != nil {
		return nil, err
	}
	report := &Report{Stream: a.Topology.Stream, limit: a.Limit}
	out := newOutcomes(in, span, report)
	j := &judge{inputs: in, outcomes: out, report: report}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return out.open(ctx, a.JS, a.Topology) },
		out.advance, in.read, in.readConsumers, out.advance, j.run,
		func(ctx context.Context) error { return out.checkPayloads(ctx, a.JS) },
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	report.sort()
	report.Took = time.Since(began)
	return report, nil
}

// span returns which inputs to audit.
func (a *Auditor) span(ctx context.Context, in *inputs) (*span, error) {
	s := &span{from: max(a.From, in.info.Config.FirstSeq, 1), to: in.info.State.LastSeq}
	if a.To > 0 {
		s.to = min(s.to, a.To)
	}
	s.since, s.until = nanos(a.Since), nanos(a.Until)
	var err error
	if s.since > 0 {
		s.before, _, err = in.around(ctx, a.Since)
	}
	if s.until > 0 && err == nil {
		_, s.after, err = in.around(ctx, a.Until)
	}
	return s, err
}

// nanos returns a time in nanoseconds since 1970, and 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// errRetention is the error if a stream of results removes what its readers have acknowledged.
var errRetention = errors.New("it removes messages that its readers have acknowledged, so nothing can be proved from it")

// streamInfo returns the state of a stream.
func streamInfo(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	return s.CachedInfo(), nil
}

// requestTimeout bounds one request to the server.
const requestTimeout = 10 * time.Second
