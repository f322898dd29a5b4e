package audit

import (
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
)

// message is what a message of a stream of results or dead letters says about its input.
type message struct {
	sequence uint64 // of the input
	stored   int64  // when the input stream stored the input, in nanoseconds since 1970; 0: the message has no id
	subject  string // of the input
	letter   bool   // it is a dead letter
	record   int    // of a dead letter: index of the record in its frame, or whole
	part     client.Part
	cut      string
	payload  uint64 // of a dead letter in two messages: the stream sequence of the payload; otherwise 0
}

// whole is the record of a dead letter that has the whole message.
const whole = -1

// final reports whether the message settles its input.
func (m *message) final() bool { return m.record == whole && m.part.Index == m.part.Count }

// parse reads the headers of a message. ok is false for other messages: commit markers, payloads that are stored apart, and what belongs to
// the inputs of other streams.
func parse(h nats.Header, input string) (m message, ok bool) {
	if value(h, client.HeaderStream) != input {
		return message{}, false
	}
	sequence, err := strconv.ParseUint(value(h, client.HeaderSequence), 10, 64)
	if err != nil {
		return message{}, false
	}
	m = message{sequence: sequence, stored: storedAt(h, input), subject: value(h, client.HeaderSubject), record: whole, part: client.Part{Index: 1, Count: 1}}
	if m.letter = value(h, client.HeaderReason) != ""; m.letter {
		if text := value(h, client.HeaderRecord); text != "" {
			if m.record, err = strconv.Atoi(text); err != nil || m.record < 0 {
				return message{}, false
			}
		}
		m.payload, _ = strconv.ParseUint(value(h, client.HeaderPayloadSequence), 10, 64)
		return m, true
	}
	if text := value(h, client.HeaderPart); text != "" {
		if m.part, err = client.ParsePart(text); err != nil {
			return message{}, false
		}
		m.cut = value(h, client.HeaderCut)
	}
	return m, true
}

// value returns the first value of a header with exactly that name, as workers write it.
func value(h nats.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// storedAt returns the time in the message's id: <stream>:<sequence>:<nanoseconds>, and more behind that.
func storedAt(h nats.Header, input string) int64 {
	id := value(h, client.HeaderID)
	if id == "" {
		id = value(h, jetstream.MsgIDHeader)
	}
	rest, ok := strings.CutPrefix(id, input+":")
	if !ok {
		return 0
	}
	_, rest, _ = strings.Cut(rest, ":")
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		rest = rest[:end]
	}
	stored, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return 0
	}
	return stored
}
