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
		js: js, inputs: nc, stream: stream, filter: subject, bytes: logAheadBytes, refused: new(atomic.Bool), log: log,
	}}
}

// logAheadBytes is the maximum number of bytes of a request for entries, unless the largest message needs more. The time between two requests is
// short in comparison with the time for that many bytes.
const logAheadBytes = 8 << 20

// stateLog implements statelog.Source with a real server.
type stateLog struct {
	js              jetstream.JetStream
	replayed        func(bytes int)
	stream, subject string
	reader          *streamReader
}

// Read implements statelog.Source. It reads on while the caller works on the entries before.
func (l *stateLog) Read(ctx context.Context, after, before uint64) iter.Seq2[statelog.Stored, error] {
	return func(yield func(statelog.Stored, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		parts, ended := make(chan []*jetstream.RawStreamMsg), make(chan error, 1)
		go func() { ended <- l.readParts(ctx, after, before, parts) }()
		stopped := l.yieldParts(parts, before, yield)
		cancel()
		if err := <-ended; err != nil && !stopped {
			yield(statelog.Stored{}, err)
		}
	}
}

// readParts reads the messages with stream sequences between the two given ones, both exclusive, and maybe some after them. It passes them on
// in parts of about logAheadBytes, and closes parts at the end. One part waits while the caller works on the one before.
func (l *stateLog) readParts(ctx context.Context, after, before uint64, parts chan<- []*jetstream.RawStreamMsg) error {
	defer close(parts)
	for {
		part, err := l.reader.readSome(ctx, after+1)
		if err == nil && part == nil {
			return l.reader.proveEnd(ctx, after+1)
		}
		if err != nil {
			return err
		}
		after = part[len(part)-1].Sequence
		select {
		case parts <- part:
		case <-ctx.Done():
			return ctx.Err()
		}
		if after+1 >= before {
			return nil
		}
	}
}

// yieldParts yields the entries with stream sequences before the given one. It reports whether it stopped before parts was closed.
func (l *stateLog) yieldParts(parts <-chan []*jetstream.RawStreamMsg, before uint64, yield func(statelog.Stored, error) bool) (stopped bool) {
	for part := range parts {
		for i, raw := range part {
			if raw.Sequence >= before {
				return true
			}
			part[i] = nil
			l.replayed(len(raw.Data))
			if entry, err := statelog.Parse(raw.Sequence, raw.Header, raw.Data); !yield(entry, err) || err != nil {
				return true
			}
		}
	}
	return false
}

// Purge implements statelog.Source.
func (l *stateLog) Purge(ctx context.Context, below uint64) error {
	s, err := l.js.Stream(ctx, l.stream)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(l.subject), jetstream.WithPurgeSequence(below))
}
