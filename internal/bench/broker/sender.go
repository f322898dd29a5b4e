package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// sendWindow is how many results may wait for the server's confirmation, as in the worker.
const sendWindow = 4096

// sender stores each result separately, many of them concurrently, and acknowledges each input when its result is stored.
type sender struct {
	js     jetstream.JetStream
	window chan sent
	stored func(since time.Time) // called for each stored result with the arrival of its input; nil for none
}

// sent is a result that is not confirmed yet.
type sent struct {
	in       jetstream.Msg
	received time.Time
	ack      jetstream.PubAckFuture
}

func newSender(js jetstream.JetStream) *sender {
	return &sender{js: js, window: make(chan sent, sendWindow)}
}

// send starts to store the result of in. Several goroutines may call it.
func (s *sender) send(ctx context.Context, in jetstream.Msg, received time.Time, operators string, body []byte) error {
	m, err := result(in, operators, body)
	if err != nil {
		return err
	}
	ack, err := s.js.PublishMsgAsync(m, jetstream.WithStallWait(answerTimeout))
	if err != nil {
		return fmt.Errorf("store a result: %w", err)
	}
	select {
	case s.window <- sent{in, received, ack}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle waits until n results are stored and acknowledges their inputs.
func (s *sender) settle(ctx context.Context, n int) error {
	for range n {
		var next sent
		select {
		case next = <-s.window:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-next.ack.Ok():
		case err := <-next.ack.Err():
			return fmt.Errorf("store a result: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
		if s.stored != nil {
			s.stored(next.received)
		}
		if err := next.in.Ack(); err != nil {
			return fmt.Errorf("acknowledge an input: %w", err)
		}
	}
	return nil
}
