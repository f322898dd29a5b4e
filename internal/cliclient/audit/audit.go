// Package audit proves from the streams alone that each stored input has exactly one outcome or is still pending. An
// outcome is a result or a dead letter. The command `worker audit` and the fault tests use the package. Start reading
// at Auditor.Run, then judge.run.
//
// An audit creates no consumer on the input stream. If a consumer of a stream with interest retention is removed, the
// server may remove inputs, too (adr/0048). The audit reads single messages of the input stream, and only if nothing
// else decides about them. It reads the streams of results and dead letters with temporary consumers that deliver only
// headers.
//
// Workers and publishers may run during an audit, because it reads in this order:
//
//  1. The last sequence of the input stream. Later inputs are not audited.
//  2. All outcomes that are stored now. Most inputs have an outcome by then.
//  3. The state of the input stream and of its consumers.
//  4. The outcomes stored since step 2. A worker acknowledges an input only after its outcome is stored, and
//     inputs are removed only after they are acknowledged. So every input that was acknowledged or removed in
//     step 3 has its outcome now, or never gets one.
//  5. Single inputs without an outcome, if the state of step 3 doesn't decide about them. Their subjects identify
//     their consumers. A missing input may have been settled since step 4.
//  6. The outcomes stored since step 4, because they decide about missing inputs.
//
// Each sequence takes one byte, in pages of 65,536 sequences, so 100 million inputs take about 100 MB. The limit is
// 4096 pages (268 million inputs). A page exists only if one of its sequences has an outcome.
package audit

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/topology"
)

// Auditor audits the inputs of one deployment.
type Auditor struct {
	JS       jetstream.JetStream // its default timeout bounds each request to the server
	Topology topology.Topology   // names of the streams and consumers, prefixes, subjects and delivery mode of the deployment

	From, To     uint64    // first and last sequence to audit; 0 means the stream's first ever, or its last when the audit begins
	Since, Until time.Time // storage times of the inputs, from Since on and before Until; zero means no limit
	Limit        int       // maximum number of findings of each kind in the report
}

// Run audits the inputs. It returns a report only if there is no error.
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

// span returns the span of inputs to audit.
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

// nanos returns a time in nanoseconds since 1970, or 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// errRetention is the error for a stream of results or dead letters that removes acknowledged messages.
var errRetention = errors.New("it removes messages that its readers have acknowledged, so nothing can be proved from it")
