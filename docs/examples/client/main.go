// Command client publishes each PAYLOAD argument as an input, and prints the result or the dead letter of each input.
//
//	worker
//	go run ./docs/examples/client nats://127.0.0.1:4222 'some text' 'some other text'
//
// It is an example for programs that send inputs and read JSON results. docs/protocol.md explains it. Start reading with run.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: client URL PAYLOAD...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// run publishes the payloads, and prints their outcomes in the same order.
func run(url string, payloads []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	started := time.Now()
	var inputs []client.Input
	for i, payload := range payloads {
		id := fmt.Sprintf("%d-%d", started.UnixNano(), i) // use an id of your data if it has one
		in, err := publish(ctx, js, "ingest.example", id, []byte(payload))
		if err != nil {
			return err
		}
		inputs = append(inputs, in)
	}
	outcomes, err := collect(ctx, js, inputs)
	for _, in := range inputs {
		fmt.Printf("input %d of %s: %s\n", in.Sequence, in.Stream, outcomes[in])
	}
	return err
}

// publish stores a payload and returns its stream and sequence.
func publish(ctx context.Context, js jetstream.JetStream, subject, id string, payload []byte) (client.Input, error) {
	ack, err := js.Publish(ctx, subject, payload, jetstream.WithMsgID(id))
	if err != nil {
		return client.Input{}, err // perhaps not stored: publish it again with the same id
	}
	return client.Input{Stream: ack.Stream, Sequence: ack.Sequence}, nil
}

// outcome returns the text to print for a message. Only dead letters have a reason.
func outcome(m jetstream.Msg) string {
	if reason := m.Headers().Get(client.HeaderReason); reason != "" {
		return fmt.Sprintf("dead letter, %s: %s", reason, m.Headers().Get(client.HeaderError))
	}
	if kind := m.Headers().Get("Content-Type"); kind != client.TypeJSON && kind != client.TypeNDJSON {
		return fmt.Sprintf("result of %d bytes, %s", len(m.Data()), kind) // binary or Arrow
	}
	return "result " + string(m.Data())
}

// follow calls handle for each result or dead letter of a stream that the filter matches.
func follow(ctx context.Context, js jetstream.JetStream, stream, filter string, handle func(client.Input, jetstream.Msg)) (jetstream.ConsumeContext, error) {
	consumer, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: "example", FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return nil, err
	}
	return consumer.Consume(func(m jetstream.Msg) {
		if in, ok := client.InputOf(m.Headers()); ok { // the message is a result or a dead letter
			handle(in, m)
		}
		_ = m.Ack() // if the acknowledgement is lost, the server redelivers the message
	})
}

// collect waits for the outcome of each input and returns the outcomes.
func collect(ctx context.Context, js jetstream.JetStream, inputs []client.Input) (map[client.Input]string, error) {
	waiting, outcomes, done := map[client.Input]bool{}, map[client.Input]string{}, make(chan struct{})
	for _, in := range inputs {
		waiting[in] = true
	}
	var mu sync.Mutex
	handle := func(in client.Input, m jetstream.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if !waiting[in] {
			return // the input belongs to another program, or the message is a redelivery
		}
		outcomes[in] = outcome(m)
		if delete(waiting, in); len(waiting) == 0 {
			close(done)
		}
	}
	for stream, filter := range map[string]string{"RESULTS": "results.>", "RESULTS_DEADLETTER": "deadletter.>"} {
		following, err := follow(ctx, js, stream, filter, handle)
		if err != nil {
			return nil, err
		}
		defer following.Stop()
	}
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.New("not every input has a result yet")
	}
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(outcomes), err
}
