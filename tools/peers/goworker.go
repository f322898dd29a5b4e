package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	pullMessages = 8192
	pullBytes    = 32 << 20
	publishing   = 1024 // maximum number of unconfirmed results
)

// goWorker is the peer in plain Go. The variables NATS_URL, STREAM and MINIMUM configure it. It stops when ctx ends.
//
// One goroutine per core receives messages, transforms them and starts to publish their results. Another goroutine acknowledges each
// message once its result is stored. Inputs and results use separate connections.
func goWorker(ctx context.Context) error {
	minimum, err := strconv.Atoi(os.Getenv("MINIMUM"))
	if err != nil {
		return fmt.Errorf("MINIMUM: %w", err)
	}
	in, errIn := open()
	out, errOut := open()
	if err := errors.Join(errIn, errOut); err != nil {
		return err
	}
	consumer, err := in.CreateOrUpdateConsumer(ctx, os.Getenv("STREAM"), jetstream.ConsumerConfig{
		Durable: goWorkerName, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 2 * pullMessages,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, messages.Stop)
	published := make(chan publication, publishing)
	var workers, settler sync.WaitGroup
	settler.Go(func() {
		for p := range published {
			p.settle()
		}
	})
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				m, err := messages.Next()
				switch {
				case errors.Is(err, jetstream.ErrMsgIteratorClosed): // because ctx ended
					return
				case err != nil:
					fmt.Fprintln(os.Stderr, "go-worker:", err)
				default:
					process(m, out, minimum, published)
				}
			}
		})
	}
	workers.Wait()
	close(published)
	settler.Wait()
	return nil
}

// open connects to the server.
func open() (jetstream.JetStream, error) {
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(publishing))
}

// publication is a message whose result is being stored.
type publication struct {
	of     jetstream.Msg
	result jetstream.PubAckFuture
}

// settle waits until the result is stored, and acknowledges the message. If that fails, the message is delivered again.
func (p publication) settle() {
	select {
	case <-p.result.Ok():
		_ = p.of.Ack()
	case err := <-p.result.Err():
		fmt.Fprintln(os.Stderr, "go-worker:", err)
		_ = p.of.Nak()
	}
}

// process transforms a message and starts to publish the result. A message without long documents has no result.
func process(m jetstream.Msg, out jetstream.JetStream, minimum int, published chan<- publication) {
	body, err := keepLong(m.Data(), minimum)
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-worker:", err)
		_ = m.TermWithReason(err.Error())
		return
	}
	if len(body) == 0 {
		_ = m.Ack()
		return
	}
	at, err := m.Metadata()
	if err != nil {
		_ = m.Nak()
		return
	}
	result, err := out.PublishAsync("results.go", body, jetstream.WithMsgID(strconv.FormatUint(at.Sequence.Stream, 10)))
	if err != nil {
		_ = m.Nak()
		return
	}
	published <- publication{m, result}
}

// keepLong returns the lines of body whose text has at least minimum bytes. It adds the member check to each line.
func keepLong(body []byte, minimum int) (kept []byte, err error) {
	for line := range bytes.Lines(body) {
		var d struct{ Text string }
		if err := json.Unmarshal(line, &d); err != nil {
			return nil, err
		}
		if len(d.Text) >= minimum {
			kept = append(kept, bytes.TrimSuffix(bytes.TrimSpace(line), []byte("}"))...)
			kept = fmt.Appendf(kept, `,"check":{"bytes":%d,"crc32c":"%08x"}}`+"\n", len(d.Text), crc32.Checksum([]byte(d.Text), castagnoli))
		}
	}
	return kept, nil
}
