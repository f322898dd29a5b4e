// Command frames publishes three records in one message, and prints the result of each. It needs a worker with
// MILLRACE_FRAMING=auto:
//
//	MILLRACE_FRAMING=auto worker
//	go run ./docs/examples/frames nats://127.0.0.1:4222
//
// It is an example for programs that send frames and read JSON results. docs/frames.md explains frames and their results.
// Start reading with run.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
)

func main() {
	url := nats.DefaultURL
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(url, "first", "second", "third"); err != nil {
		fmt.Fprintln(os.Stderr, "frames:", err)
		os.Exit(1)
	}
}

// run publishes a frame and prints its result.
func run(url string, records ...string) error {
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
	stored, err := publish(ctx, js, records)
	if err != nil {
		return err
	}
	fmt.Println(len(records), "records are stored in message", stored.Sequence, "of", stored.Stream)
	return printResult(ctx, js, stored.Sequence)
}

// publish stores the records as one message.
func publish(ctx context.Context, js jetstream.JetStream, records []string) (*jetstream.PubAck, error) {
	var frame []byte
	for _, r := range records {
		var err error
		if frame, err = client.AppendNewline(frame, []byte(r)); err != nil {
			return nil, err // the record contains a line feed: use Arrow
		}
	}
	return js.PublishMsg(ctx, &nats.Msg{
		Subject: "ingest.example", Data: frame, Header: nats.Header{client.HeaderContentType: {client.TypeNDJSON}},
	})
}

// printResult waits for all parts of the result of the message with the given sequence, and prints them.
func printResult(ctx context.Context, js jetstream.JetStream, sequence uint64) error {
	results, err := js.OrderedConsumer(ctx, "RESULTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"results.example"}})
	if err != nil {
		return err
	}
	var parts client.Collector[jetstream.Msg]
	for {
		m, err := results.Next(jetstream.FetchContext(ctx))
		if err != nil {
			return err
		}
		if m.Headers().Get(client.HeaderSequence) != strconv.FormatUint(sequence, 10) {
			continue // the result of another message
		}
		result, err := parts.Add(m.Headers(), m)
		if err != nil {
			return err
		}
		for _, part := range result {
			if err := printPart(part); err != nil {
				return err
			}
		}
		if result != nil {
			return nil
		}
	}
}

// printPart prints a line for each record of a message.
func printPart(m jetstream.Msg) error {
	first, _ := strconv.Atoi(m.Headers().Get(client.HeaderFirstRecord)) // 0 without the header
	for line, err := range client.Lines(m.Data()) {
		switch {
		case err != nil:
			return err
		case line.Error != nil:
			fmt.Printf("record %d: %d bytes, %v\n", first, line.Bytes, line.Error)
		default:
			fmt.Printf("record %d: %d bytes, crc32c %s\n", first, line.Bytes, line.Values["crc32c"])
		}
		first++
	}
	return nil
}
