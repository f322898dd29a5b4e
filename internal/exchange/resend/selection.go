package resend

import (
	"slices"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/internal/wildcard"
)

// Range is a range of sequences, with both ends.
type Range struct{ First, Last uint64 }

// Selection selects dead letters by what their headers say. The zero value selects all.
type Selection struct {
	Reasons []string // values of client.HeaderReason; empty: all
	Subject string   // a filter of the inputs' subjects; empty: all
	Inputs  []Range  // sequences of the inputs; empty: all
}

// selects reports whether the selection has a dead letter with these headers.
func (s *Selection) selects(h nats.Header) bool {
	sequence := number(h, client.HeaderSequence)
	return (len(s.Reasons) == 0 || slices.Contains(s.Reasons, h.Get(client.HeaderReason))) &&
		(s.Subject == "" || wildcard.Covers(s.Subject, h.Get(client.HeaderSubject))) &&
		(len(s.Inputs) == 0 || slices.ContainsFunc(s.Inputs, func(r Range) bool { return r.First <= sequence && sequence <= r.Last }))
}

// isDeadLetter reports whether a message with these headers is a dead letter. The stream also stores payloads and inputs that dead letters
// name, delete markers, and messages of other publishers.
func isDeadLetter(h nats.Header) bool {
	return h.Get(client.HeaderReason) != "" && h.Get(client.HeaderSubject) != "" && number(h, client.HeaderSequence) > 0
}
