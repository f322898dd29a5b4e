package lease

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/topology"
)

// logOf returns the log of a partition's state.
func (s *states) logOf(p int) statelog.Source {
	t := &s.o.Topology
	return NewStateLog(s.o.JS, s.o.Conns[0], t.ResultStream, topology.CommitSubject(t.CommitPrefix, t.ResultStream, t.Stream, t.Consumer, p), s.o.Observer.StateReplayed, s.log)
}

// NewStateLog returns the log of a partition's state in a stream, as leases read it. The reader receives entries on the connection nc, and makes
// all other requests with js. markers is the subject of the partition's commit markers. For each entry that was read, replayed is called with its
// bytes.
func NewStateLog(js jetstream.JetStream, nc *nats.Conn, stream, markers string, replayed func(bytes int), log *slog.Logger) statelog.Source {
	subject := statelog.Subject(markers)
	return &stateLog{js: js, replayed: replayed, stream: stream, subject: subject, reader: &streamReader{
		js: js, inputs: nc, stream: stream, filter: subject, refused: new(atomic.Bool), log: log,
	}}
}

// stateLog implements statelog.Source with a real server.
type stateLog struct {
	js              jetstream.JetStream
	replayed        func(bytes int)
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
			l.replayed(len(raw.Data))
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
