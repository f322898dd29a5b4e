package results_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
)

// input is the first delivery of message 7 in the stream INGEST.
var input = inflight.Delivery{
	Msg:    message{header: nats.Header{"Language": {"en"}}},
	Stream: "INGEST", Sequence: 7, Subject: "ingest.web", Stored: time.Unix(1, 0), NumDelivered: 1, First: true,
}

// ExampleResultHeader shows the headers that identify the input of a result. The duplicate window of the result
// stream compares Nats-Msg-Id.
func ExampleResultHeader() {
	h := results.ResultHeader(&input, "crc32c")
	for _, key := range slices.Sorted(maps.Keys(h)) {
		fmt.Printf("%s: %s\n", key, h.Get(key))
	}
	// Output:
	// Language: en
	// Millrace-Operators: crc32c
	// Millrace-Sequence: 7
	// Millrace-Stream: INGEST
	// Millrace-Subject: ingest.web
	// Nats-Msg-Id: INGEST:7:1000000000
}

// ExampleDeadLetterHeader shows why an input was given up.
func ExampleDeadLetterHeader() {
	h := results.DeadLetterHeader(&input, results.TooLarge, errors.New("its result cannot be stored"), true)
	fmt.Println(h.Get(results.HeaderReason), "after", h.Get(results.HeaderDeliveries), "delivery:", h.Get(results.HeaderError))
	// Output:
	// too_large after 1 delivery: its result cannot be stored
}

type message struct {
	inflight.Message
	header nats.Header
}

func (m message) Headers() nats.Header { return m.header }
