package results

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// Headers of results and dead letters, documented in package client. The input's headers are copied too, except headers with a
// meaning for the server or a client library (see carried). A result also lacks the input's headers that describe a body (see
// content).
const (
	HeaderStream          = client.HeaderStream
	HeaderSequence        = client.HeaderSequence
	HeaderSubject         = client.HeaderSubject
	HeaderOperators       = client.HeaderOperators
	HeaderReason          = client.HeaderReason
	HeaderError           = client.HeaderError
	HeaderDeliveries      = client.HeaderDeliveries
	HeaderRetryOf         = client.HeaderRetryOf
	HeaderRecords         = client.HeaderRecords
	HeaderFiltered        = client.HeaderFiltered
	HeaderAnnotation      = client.HeaderAnnotation
	HeaderPart            = client.HeaderPart
	HeaderCut             = client.HeaderCut
	HeaderFirstRecord     = client.HeaderFirstRecord
	HeaderRecord          = client.HeaderRecord
	HeaderOperator        = client.HeaderOperator
	HeaderInput           = client.HeaderInput
	HeaderOmitted         = client.HeaderOmitted
	HeaderPayloadSequence = client.HeaderPayloadSequence
	HeaderPayloadBytes    = client.HeaderPayloadBytes
	HeaderPayloadDigest   = client.HeaderPayloadDigest
)

// Prefixes of headers that are not copied, except HeaderRetryOf. The server would interpret copied headers with serversPrefix, and might
// refuse or drop the result. If headers with ownPrefix were copied, the result of a resent dead letter would look like a dead letter.
const (
	serversPrefix = "Nats-"
	ownPrefix     = "Millrace-"
)

// serversPin is the header that the server adds to each delivery of a pinned consumer.
const serversPin = "Nats-Pin-Id"

// statusHeaders are the headers in which client libraries put the server's status line. The libraries interpret a message with
// such a header and without a payload as a status message. For example, nats.go ends a Consume, a Messages or a Fetch on it. Some
// libraries ignore the case of these names, and so does carried.
var statusHeaders = [...]string{"Status", "Description"}

// carried reports whether an input's header key is copied to its result and its dead letter. A server stores any bytes as a header
// name, but the client refuses to publish invalid names.
func carried(key string) bool {
	if IsReserved(key) {
		return key == HeaderRetryOf
	}
	for _, status := range statusHeaders {
		if strings.EqualFold(key, status) {
			return false
		}
	}
	return IsWritable(key)
}

// passThrough returns a copy of the carried headers of in. The map has space for more headers, extra in number. passThrough omits
// headers that describe the body, unless body is set.
func passThrough(in nats.Header, extra int, body bool) nats.Header {
	out := make(nats.Header, len(in)+extra)
	for key, values := range in {
		if carried(key) && (body || !describesBody(key)) {
			out[key] = values
		}
	}
	return out
}

// Withheld returns the values of HeaderInput: one line for each value of an input's header that isn't carried, sorted by name. If
// the input is a dead letter that was published again, Withheld keeps its HeaderInput lines. It omits the other Millrace headers,
// because the new dead letter has its own. It also omits the pin of exclusive delivery, because the pin isn't part of the stored
// input.
func Withheld(in nats.Header) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(in)) {
		switch {
		case carried(key), key == serversPin, hasPrefixFold(key, ownPrefix) && key != HeaderInput:
		case key == HeaderInput:
			lines = append(lines, in[key]...)
		default:
			for _, value := range in[key] {
				lines = append(lines, key+": "+value)
			}
		}
	}
	return lines
}

// IsWritable reports whether the client can publish a header named key. It must consist of visible ASCII characters other than
// MIME separators.
func IsWritable(key string) bool {
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c > '~' || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return key != ""
}

// IsReserved reports whether a header named key belongs to the server or to Millrace.
func IsReserved(key string) bool {
	return hasPrefixFold(key, serversPrefix) || hasPrefixFold(key, ownPrefix)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func addSource(h nats.Header, d *inflight.Delivery) {
	h[HeaderStream] = []string{d.Stream}
	h[HeaderSequence] = []string{strconv.FormatUint(d.Sequence, 10)}
	h[HeaderSubject] = []string{d.Subject}
}

// MessageID returns the id of an input's result for the stream's duplicate window: <stream>:<sequence>:<time at which the input
// stream stored it, in nanoseconds since 1970>. The server sends all three with every delivery, so every worker gives an input the
// same id. The id includes the time because a stream that is recreated, or restored from an older copy, reuses sequences.
func MessageID(d *inflight.Delivery) string {
	id := make([]byte, 0, len(d.Stream)+2*len(":18446744073709551615"))
	id = append(id, d.Stream...)
	id = append(id, ':')
	id = strconv.AppendUint(id, d.Sequence, 10)
	id = append(id, ':')
	return string(strconv.AppendInt(id, d.Stored.UnixNano(), 10))
}

// partID returns the id of the n-th part of a frame's result, counted from 1. The last part has the id MessageID instead, so that
// a stream stores the last part of only one cut (adr/0039).
func partID(d *inflight.Delivery, n int, cut string) string {
	return MessageID(d) + "/" + strconv.Itoa(n) + "/" + cut
}

// RecordID returns the id of the dead letter of a frame's i-th record.
func RecordID(d *inflight.Delivery, i int) string { return MessageID(d) + "#" + strconv.Itoa(i) }

// inputID returns the id of the message that storeInput stores. A lookup recognizes by this id that the message doesn't finish the
// input.
func inputID(d *inflight.Delivery) string { return MessageID(d) + "#message" }

// headerBytes returns the size of h in a message, in bytes.
func headerBytes(h nats.Header) int {
	n := len("NATS/1.0\r\n\r\n")
	for key, values := range h {
		for _, v := range values {
			n += len(key) + len(": ") + len(v) + len("\r\n")
		}
	}
	return n
}

// resultHeaders are the headers that a result has in addition to its input's.
var resultHeaders = [...]string{HeaderStream, HeaderSequence, HeaderSubject, HeaderOperators, jetstream.MsgIDHeader}

// ResultHeader returns the headers of d's result, except headers that describe the result's body.
func ResultHeader(d *inflight.Delivery, operators string) nats.Header {
	h := passThrough(d.Msg.Headers(), len(resultHeaders)+1, false)
	id := MessageID(d)
	sequence, _, _ := strings.Cut(id[len(d.Stream)+1:], ":")
	values := []string{d.Stream, sequence, d.Subject, operators, id} // one allocation for all values
	for i, key := range resultHeaders {
		h[key] = values[i : i+1 : i+1]
	}
	if !d.First {
		h[HeaderDeliveries] = []string{strconv.Itoa(d.NumDelivered)}
	}
	return h
}

// Headers that describe a body. A result has its own values. The dead letter of a whole message has the input's values, because it
// has the input's body.
const (
	headerContentType     = "Content-Type"
	headerContentEncoding = "Content-Encoding"
)

// describesBody reports whether key is a header that describes a body.
func describesBody(key string) bool {
	switch len(key) {
	case len(headerContentType):
		return strings.EqualFold(key, headerContentType)
	case len(headerContentEncoding):
		return strings.EqualFold(key, headerContentEncoding)
	}
	return false
}

// content has the values of the headers that describe result bodies. All results share the values, which must not be modified.
type content struct {
	single, framed []string // Content-Type for a message that is one record, and for a frame
	encoding       []string // Content-Encoding; nil if results are not compressed
}

func newContent(f operator.Format, e compression.Encoding) content {
	c := content{single: []string{table.ContentType(f, false)}, framed: []string{table.ContentType(f, true)}}
	if e != compression.None {
		c.encoding = []string{e.ContentEncoding()}
	}
	return c
}

// describe sets the headers in h for a result body of the given size in bytes. An empty body is never compressed.
func (c *content) describe(h nats.Header, framed bool, body int) {
	h[headerContentType] = c.single
	if framed {
		h[headerContentType] = c.framed
	}
	if c.encoding != nil && body > 0 {
		h[headerContentEncoding] = c.encoding
	}
}

// Reason is the reason for a dead letter, and the value of the Millrace-Reason header.
type Reason string

// The reasons.
const (
	TooLarge      Reason = "too_large"      // the payload exceeds a batch, or its result exceeds the server's limit
	MaxDeliver    Reason = "max_deliver"    // the payload was delivered too often
	OperatorError Reason = "operator_error" // an operator failed on the payload
	DeviceFault   Reason = "device_fault"   // the payload broke the device

	NoField     Reason = "no_field"     // the payload doesn't have the field that is the record
	InvalidJSON Reason = "invalid_json" // the payload isn't valid JSON
	FilterError Reason = "filter_error" // the filter fails on the payload

	InvalidFrame    Reason = "invalid_frame"    // the message can't be split into records
	InvalidEncoding Reason = "invalid_encoding" // the message can't be decompressed
)

// Reasons lists all reasons.
var Reasons = []Reason{TooLarge, MaxDeliver, OperatorError, DeviceFault, NoField, InvalidJSON, FilterError, InvalidFrame, InvalidEncoding}

// errUnstorable returns the cause of the dead letter if a result exceeds the message size limit of the server or of the result
// stream. err is the error of the publish.
func errUnstorable(err error) error { return fmt.Errorf("its result cannot be stored: %w", err) }

// ErrExceedsBatch returns the error for a payload of the given bytes that is larger than a batch. limit is the maximum size of a
// batch in bytes.
func ErrExceedsBatch(bytes, limit int) error {
	return errors.New("payload of " + inflight.ExceedsBatch(bytes, limit))
}

// Blame returns an error with the given text as the cause of a dead letter. name is the operator at fault, or empty if it is
// unknown.
func Blame(name, text string) error {
	if name == "" {
		return errors.New(text)
	}
	return &operator.RecordError{Operator: name, Text: operator.RefusalText(name, text)}
}

// recordError returns the cause of the dead letter of record i.
func recordError(f *inflight.Frame, i int) error {
	text := f.Split().Fault(i)
	if text == "" {
		text = f.Table.Message(i)
	}
	return &operator.RecordError{Operator: f.Table.Operator(i), Text: text}
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

// shortSubject truncates a dead letter's subject to store.MaxSubject. The headers have the input's whole subject.
func shortSubject(subject string) string {
	if len(subject) <= store.MaxSubject {
		return subject
	}
	return strings.TrimRight(subject[:store.MaxSubject], ".")
}

// digest returns the value of HeaderPayloadDigest: "SHA-256=" and the hash in URL-safe base64, as in NATS's object store.
func digest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
}
