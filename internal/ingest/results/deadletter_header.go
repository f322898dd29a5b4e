package results

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/unpack"
	"millrace/internal/operator"
)

// Reason is the reason for a dead letter, and the value of the Millrace-Reason header.
type Reason string

// The reasons.
const (
	TooLarge      Reason = "too_large"      // the payload exceeds a batch, or its result exceeds the server's limit
	MaxDeliver    Reason = "max_deliver"    // the payload was delivered too often
	OperatorError Reason = "operator_error" // an operator failed on the payload
	DeviceFault   Reason = "device_fault"   // the payload broke the device

	InvalidFrame    Reason = "invalid_frame"    // the message can't be split into records
	InvalidEncoding Reason = "invalid_encoding" // the message can't be decompressed
)

// Reasons lists all reasons.
var Reasons = []Reason{TooLarge, MaxDeliver, OperatorError, DeviceFault, InvalidFrame, InvalidEncoding}

// errUnstorable returns the cause of the dead letter if a result exceeds the message size limit of the server or of the result
// stream. err is the error of the publish.
func errUnstorable(err error) error { return fmt.Errorf("its result cannot be stored: %w", err) }

// ErrExceedsBatch returns the error for a payload of the given bytes that is larger than a batch. limit is the maximum size of a
// batch in bytes.
func ErrExceedsBatch(bytes, limit int) error {
	return errors.New("payload of " + unpack.ExceedsBatch(bytes, limit))
}

// Blame returns an error with the given text as the cause of a dead letter. name is the operator at fault, or empty if it is
// unknown.
func Blame(name, text string) error {
	if name == "" {
		return errors.New(text)
	}
	return &operator.RecordError{Operator: name, Text: operator.RefusalText(name, text)}
}

// DeadLetterHeader returns the headers of a dead letter except its id. They include the input's headers if own is set. The id must
// differ from the result's id. The stream may have stored the result without a confirmation, and would then drop the dead letter.
func DeadLetterHeader(d *inflight.Delivery, why Reason, cause error, own bool) nats.Header {
	h := nats.Header{}
	if own {
		h = inputHeader(d)
	}
	addSource(h, d)
	h[HeaderReason] = []string{string(why)}
	h[HeaderError] = []string{headerText(cause)}
	if name := operator.ToBlame(cause); name != "" {
		h[HeaderOperator] = []string{name}
	}
	h[HeaderDeliveries] = []string{strconv.Itoa(d.NumDelivered)}
	return h
}

// inputHeader returns the headers that a dead letter takes from its input, in a map with space for ten more.
func inputHeader(d *inflight.Delivery) nats.Header {
	h := passThrough(d.Msg.Headers(), 10, true)
	if lines := Withheld(d.Msg.Headers()); len(lines) > 0 {
		h[HeaderInput] = lines
	}
	return h
}

// DeadLetterID returns the id of the dead letter of a whole message.
func DeadLetterID(d *inflight.Delivery, why Reason) string { return MessageID(d) + ":" + string(why) }

// headerText returns the text of err as one header line of at most 512 bytes.
func headerText(err error) string {
	const limit = 512
	text := []byte(err.Error())
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
	return string(text[:min(len(text), limit)])
}

// shortSubject truncates a dead letter's subject to publisher.MaxSubject. The headers have the input's whole subject.
func shortSubject(subject string) string {
	if len(subject) <= publisher.MaxSubject {
		return subject
	}
	return strings.TrimRight(subject[:publisher.MaxSubject], ".")
}

// digest returns the value of HeaderPayloadDigest: "SHA-256=" and the hash in URL-safe base64, as in NATS's object store.
func digest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
}
