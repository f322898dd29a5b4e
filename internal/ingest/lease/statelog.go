package lease

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/topology"
)

// logOf returns the log of a partition's state.
func (s *states) logOf(p int) *stateLog {
	t := &s.o.Topology
	subject := statelog.Subject(topology.CommitSubject(t.CommitPrefix, t.ResultStream, t.Stream, t.Consumer, p))
	return &stateLog{js: s.o.JS, observer: s.o.Observer, stream: t.ResultStream, subject: subject, reader: &streamReader{
		js: s.o.JS, inputs: s.o.Conns[0], stream: t.ResultStream, filter: subject, refused: new(atomic.Bool), log: s.log,
	}}
}

// stateLog implements statelog.Source with a real server.
type stateLog struct {
	js              jetstream.JetStream
	observer        Observer
	stream, subject string
	reader          *streamReader
}

// Read implements statelog.Source.
func (l *stateLog) Read(ctx context.Context, after, before uint64) iter.Seq2[statelog.Stored, error] {
	return func(yield func(statelog.Stored, error) bool) {
		for {
			raw, err := l.reader.read(ctx, after+1)
			if err == nil && raw == nil {
				err = l.reader.proveEnd(ctx, after+1)
			}
			if err != nil {
				yield(statelog.Stored{}, err)
				return
			}
			if raw == nil || raw.Sequence >= before {
				return
			}
			after = raw.Sequence
			l.observer.StateReplayed(len(raw.Data))
			if entry, err := statelog.Parse(after, raw.Header, raw.Data); !yield(entry, err) || err != nil {
				return
			}
		}
	}
}

// Purge implements statelog.Source.
func (l *stateLog) Purge(ctx context.Context, below uint64) error {
	s, err := l.js.Stream(ctx, l.stream)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(l.subject), jetstream.WithPurgeSequence(below))
}
