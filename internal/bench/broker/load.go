package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
)

// load describes the payloads of one round. Payload i is input i+1 of the stream.
type load struct {
	seed uint64
	n    int
	size int // size of each payload, in bytes
}

// payload creates payload i in dst, or in new memory if dst is too short.
func (l load) payload(dst []byte, i int) []byte {
	if cap(dst) < l.size {
		dst = make([]byte, l.size)
	}
	dst = dst[:l.size]
	bench.Document(dst, l.seed, i)
	return dst
}

const (
	// fillWindow is how many messages may be unconfirmed while the input stream is filled.
	fillWindow = 4096

	// fillBytes bounds the bytes of unconfirmed messages.
	fillBytes = 32 << 20

	// answerTimeout bounds the server's response time. After that the round fails.
	answerTimeout = time.Minute
)

// fill stores every payload of l, in order.
func (s *server) fill(ctx context.Context, l load) error {
	if err := s.fits(l.size); err != nil {
		return err
	}
	failed := make(chan error, 1)
	js, err := jetstream.New(s.nc,
		jetstream.WithPublishAsyncMaxPending(min(fillWindow, max(fillBytes/l.size, 1))),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			select {
			case failed <- err:
			default: // the first error is enough
			}
		}))
	if err != nil {
		return err
	}
	for i := range l.n {
		if err := ctx.Err(); err != nil {
			return err
		}
		m := &nats.Msg{Subject: subject(i), Data: l.payload(nil, i)}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(answerTimeout)); err != nil {
			return fmt.Errorf("fill the input stream: %w", err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("fill the input stream: %w", err)
	default:
		return nil
	}
}

// fits returns an error if the server does not accept payloads of that size.
func (s *server) fits(size int) error {
	if most := s.nc.MaxPayload() - maxHeader; int64(size) > most {
		return bench.Unable("the server accepts payloads of at most %d bytes: raise its max_payload", most)
	}
	return nil
}
