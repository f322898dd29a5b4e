package exchange

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
)

// Line is a line of output. It has a Result, a DeadLetter, or Records.
type Line struct {
	Stream   string `json:"stream"`   // of the input
	Sequence uint64 `json:"sequence"` // of the input in its stream
	Subject  string `json:"subject"`  // of the input

	Record  *uint64         `json:"record,omitempty"`  // index of the record in its frame; absent if the input isn't a frame
	Records *uint64         `json:"records,omitempty"` // 0 for a frame without records; otherwise absent
	Result  json.RawMessage `json:"result,omitempty"`  // as a result in JSON has it

	DeadLetter *DeadLetter `json:"dead_letter,omitempty"`
}

// DeadLetter tells why an input, or one record of it, has no result.
type DeadLetter struct {
	Reason     string `json:"reason"`
	Error      string `json:"error,omitempty"`
	Operator   string `json:"operator,omitempty"`
	Deliveries uint64 `json:"deliveries,omitempty"`
	Bytes      int    `json:"bytes"`             // length of its payload as stored
	Omitted    string `json:"omitted,omitempty"` // what it lacks, as in client.HeaderOmitted

	Payload         any    `json:"payload,omitempty"`          // a text if it is UTF-8, otherwise {"base64": "..."}; only if asked for
	PayloadCut      bool   `json:"payload_cut,omitempty"`      // Payload is only the beginning
	PayloadSequence uint64 `json:"payload_sequence,omitempty"` // of the message with the payload or the whole input, in the dead letter's stream
}

// newLine returns a line about the input that the headers name.
func newLine(h nats.Header) Line {
	l := Line{Stream: h.Get(client.HeaderStream), Sequence: number(h, client.HeaderSequence), Subject: h.Get(client.HeaderSubject)}
	if h.Get(client.HeaderRecord) != "" {
		at := number(h, client.HeaderRecord)
		l.Record = &at
	}
	return l
}

// newDeadLetter returns what a dead letter says.
func newDeadLetter(m jetstream.Msg) *DeadLetter {
	h := m.Headers()
	return &DeadLetter{
		Reason: h.Get(client.HeaderReason), Error: h.Get(client.HeaderError), Operator: h.Get(client.HeaderOperator),
		Deliveries: number(h, client.HeaderDeliveries), Bytes: len(m.Data()), Omitted: h.Get(client.HeaderOmitted),
		PayloadSequence: number(h, client.HeaderPayloadSequence),
	}
}

// show adds the payload that the dead letter has, at most that many bytes of it.
func (d *DeadLetter) show(payload []byte, most int) {
	if len(payload) == 0 && d.Omitted != "" {
		return // it is in another message, or nowhere
	}
	text := utf8.Valid(payload)
	if d.PayloadCut = len(payload) > most; d.PayloadCut {
		for text && most > 0 && !utf8.RuneStart(payload[most]) {
			most--
		}
		payload = payload[:most]
	}
	if d.Payload = string(payload); !text {
		d.Payload = map[string][]byte{"base64": payload}
	}
}

// number returns a header that is a number, and 0 if it isn't one.
func number(h nats.Header, name string) uint64 {
	n, _ := strconv.ParseUint(h.Get(name), 10, 64)
	return n
}
