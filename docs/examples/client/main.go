// Command client publishes each of its arguments as an input, and prints what became of it: its result, or its dead letter.
//
//	worker
//	go run ./docs/examples/client nats://127.0.0.1:4222 'some text' 'some other text'
//
// It is an example for programs that send inputs and read JSON results. docs/clients.md explains it. Start reading with run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// publish stores a payload, and returns which input it is. If you publish it again with the same id within the stream's duplicate
// window, because the acknowledgement was lost, the stream stores it once, and you get the same sequence.
func publish(ctx context.Context, js jetstream.JetStream, subject, id string, payload []byte) (client.Input, error) {
	ack, err := js.Publish(ctx, subject, payload, jetstream.WithMsgID(id))
	if err != nil {
		return client.Input{}, err // not stored, or not known to be: publish it again with the same id
	}
	return client.Input{Stream: ack.Stream, Sequence: ack.Sequence}, nil
}

// found is the outcome of an input.
type found struct {
	client.Input
	text string
}

// find sends the outcome that a message has to outcomes. If the message is neither a result nor a dead letter, such as a commit marker of
// exclusive delivery, it has no input, and find ignores it.
func find(ctx context.Context, m jetstream.Msg, outcomes chan<- found) error {
	in, ok := client.InputOf(m.Headers())
	if !ok {
		return nil
	}
	select {
	case outcomes <- found{in, outcome(m)}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outcome describes a message. Every dead letter has a reason, and no result has one.
func outcome(m jetstream.Msg) string {
	if reason := m.Headers().Get(client.HeaderReason); reason != "" {
		return fmt.Sprintf("dead letter, %s: %s", reason, m.Headers().Get(client.HeaderError))
	}
	return "result " + string(m.Data())
}

// follow calls handle for each message of a stream that the filter matches. The server remembers the position of a durable consumer, so a
// program that is started again continues where it stopped.
func follow(ctx context.Context, js jetstream.JetStream, stream, filter string, handle func(jetstream.Msg) error) (jetstream.ConsumeContext, error) {
	consumer, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: "example", FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return nil, err
	}
	return consumer.Consume(func(m jetstream.Msg) {
		if err := handle(m); err != nil {
			fmt.Fprintln(os.Stderr, "client:", err)
			_ = m.NakWithDelay(time.Second) // it comes again
			return
		}
		_ = m.Ack() // if that is lost, it comes again
	})
}

// collect returns the outcome of each input.
func collect(ctx context.Context, js jetstream.JetStream, inputs []client.Input) (map[client.Input]string, error) {
	arrived := make(chan found)
	for stream, filter := range map[string]string{"RESULTS": "results.>", "RESULTS_DEADLETTER": "deadletter.>"} {
		following, err := follow(ctx, js, stream, filter, func(m jetstream.Msg) error { return find(ctx, m, arrived) })
		if err != nil {
			return nil, err
		}
		defer following.Stop()
	}
	waiting := map[client.Input]bool{}
	for _, in := range inputs {
		waiting[in] = true
	}
	outcomes := map[client.Input]string{}
	for len(waiting) > 0 {
		select {
		case f := <-arrived:
			if waiting[f.Input] { // otherwise it is of an input of somebody else, or comes a second time
				outcomes[f.Input] = f.text
				delete(waiting, f.Input)
			}
		case <-ctx.Done():
			return outcomes, errors.New("not every input has a result yet")
		}
	}
	return outcomes, nil
}
