package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/ingest"
	"millrace/internal/operator"
)

// load describes the messages of one round. Message i is input i+1 of the stream.
type load struct {
	n int
	content
}

// content is what the messages of a load hold. It decides how a worker splits them, and which results are right.
type content interface {
	// message returns message i, in dst if that is long enough. The caller must not change it.
	message(dst []byte, i int) []byte

	// records returns the number of records in each message.
	records() int

	// recordBytes returns the size of each record.
	recordBytes() int

	// bytes returns the mean size of a message.
	bytes() int

	// configure sets the options of a Millrace worker that depend on the content.
	configure(o *ingest.Options)

	// null returns the result that a worker that computes nothing stores for each message. It is as large as a result of crc32c.
	null() nullResult

	// checker returns a function that compares a worker's result of message i with the reference, for at least a sample of n
	// messages. Only one goroutine may call it.
	checker(ops []operator.Operator, n int) func(i int, got []byte) error
}

// unframed is the content of messages that are one record: random bytes of one size, different in each message.
type unframed struct {
	seed uint64
	size int
}

func (u unframed) message(dst []byte, i int) []byte {
	if cap(dst) < u.size {
		dst = make([]byte, u.size)
	}
	dst = dst[:u.size]
	bench.Document(dst, u.seed, i)
	return dst
}

func (u unframed) records() int     { return 1 }
func (u unframed) recordBytes() int { return u.size }
func (u unframed) bytes() int       { return u.size }

func (u unframed) configure(o *ingest.Options) { o.Format = operator.JSON }

func (u unframed) null() nullResult {
	ops := bench.Parse(nullSize)
	return nullResult{body: operator.JSON.Append(nil, ops, u.size, [][]byte{make([]byte, ops[0].Stride())})}
}

func (u unframed) checker(ops []operator.Operator, n int) func(i int, got []byte) error {
	every := max(n*u.size/sampleBytes, 1)
	return func(i int, got []byte) error {
		if i != 0 && i != n-1 && i%every != 0 {
			return nil
		}
		return operator.JSON.Check(ops, u.message(nil, i), got)
	}
}

const (
	// fillWindow is how many messages may be unconfirmed while the input stream is filled.
	fillWindow = 4096

	// fillBytes bounds the bytes of unconfirmed messages.
	fillBytes = 32 << 20

	// answerTimeout bounds the server's response time. After that the round fails.
	answerTimeout = time.Minute
)

// fill stores every message of l, in order.
func (s *server) fill(ctx context.Context, l load) error {
	if err := s.fits(len(l.message(nil, 0))); err != nil {
		return err
	}
	failed := make(chan error, 1)
	js, err := s.api.New(s.nc,
		jetstream.WithPublishAsyncMaxPending(min(fillWindow, max(fillBytes/l.bytes(), 1))),
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
		m := &nats.Msg{Subject: subject(i), Data: l.message(nil, i)}
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

// fits returns an error if the server does not accept messages of that size.
func (s *server) fits(size int) error {
	if most := s.nc.MaxPayload() - maxHeader; int64(size) > most {
		return bench.Unable("the server accepts messages of at most %d bytes: raise its max_payload", most)
	}
	return nil
}
