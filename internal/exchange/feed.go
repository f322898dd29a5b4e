package exchange

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/topology"
)

// feed reads the messages of one stream in order. It leaves the stream as it is.
type feed struct {
	stream   string
	last     uint64 // sequence of the stream's last message when the feed was opened
	waiting  uint64 // matching messages that were stored before
	skip     uint64 // matching messages to skip
	earlier  bool   // the stream may have earlier messages that match
	messages jetstream.MessagesContext
}

const (
	// prefetchBytes is the least number of bytes that the client requests ahead. A request must have room for the largest message.
	prefetchBytes = 4 << 20

	// wider is how much further back openFeed looks if too few messages match.
	wider = 16

	// unused is how long the server keeps a consumer that nobody reads.
	unused = time.Minute

	// silence is how long the server may take to send the next message that it has.
	silence = 30 * time.Second
)

// openFeed opens a feed of a stream's messages that were published under these subjects. It begins with the last of them, at most that
// many, but not before the sequence from. The caller closes it.
func openFeed(ctx context.Context, js jetstream.JetStream, stream string, subjects []string, most, from uint64) (*feed, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	info := s.CachedInfo()
	if info.Config.Retention == jetstream.WorkQueuePolicy {
		return nil, fmt.Errorf("stream %s is a work queue: reading a message removes it, so this command doesn't", stream)
	}
	subjects = topology.StoredFilters(info.Config.SubjectTransform, subjects)
	f := &feed{stream: stream, last: info.State.LastSeq}
	first := max(info.State.FirstSeq, 1)
	var consumer jetstream.Consumer
	for back := most; ; back = further(back) {
		begin := max(first, from, f.last+1-min(back, f.last))
		consumer, err = js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
			FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: begin, InactiveThreshold: unused,
		})
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", stream, err)
		}
		f.waiting, f.earlier = consumer.CachedInfo().NumPending, begin > first
		if f.waiting >= most || !f.earlier || back == math.MaxUint64 {
			break
		}
	}
	if f.waiting > most {
		f.skip, f.earlier = f.waiting-most, true
	}
	bytes := max(prefetchBytes, 2*int(js.Conn().MaxPayload()))
	if f.messages, err = consumer.Messages(jetstream.PullMaxBytes(bytes)); err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	return f, nil
}

// further returns how many messages before the end to begin, if too few of the last n match.
func further(n uint64) uint64 {
	if n > math.MaxUint64/wider {
		return math.MaxUint64
	}
	return n * wider
}

// close ends the feed.
func (f *feed) close() { f.messages.Stop() }

// backlog passes on the messages that were stored before the feed was opened.
func (f *feed) backlog(ctx context.Context, handle func(jetstream.Msg) error) error {
	for f.waiting > 0 {
		once, cancel := context.WithTimeout(ctx, silence)
		stopping := context.AfterFunc(once, f.messages.Stop) // Next waits for a server that is gone, whatever its context
		m, err := f.messages.Next(jetstream.NextContext(once))
		stopping()
		late := once.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && late:
			return fmt.Errorf("read stream %s: the server sends nothing for %v, although it has %d more messages", f.stream, silence, f.waiting)
		case err != nil:
			return fmt.Errorf("read stream %s: %w", f.stream, err)
		}
		if f.skip > 0 {
			f.skip--
		} else if err := handle(m); err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if f.waiting = meta.NumPending; meta.Sequence.Stream >= f.last {
			f.waiting = 0
		}
	}
	return nil
}

// follow passes on the messages that come, until ctx ends.
func (f *feed) follow(ctx context.Context, out chan<- jetstream.Msg) error {
	for {
		m, err := f.messages.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read stream %s: %w", f.stream, err)
		}
		select {
		case out <- m:
		case <-ctx.Done():
			return nil
		}
	}
}
