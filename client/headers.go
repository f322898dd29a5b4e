// Package client reads the results that a Millrace worker publishes, and builds the frames that a worker reads. It needs only the
// standard library and leaves the choice of a NATS client to you.
//
// To read results, start with Decode for MILLRACE_RESULT_FORMAT=binary, with Lines for json, and with Documents for annotated. For arrow,
// use package millrace/client/arrow. If a result has a Content-Encoding, decompress its body first. InputOf returns the input of a result from
// the result's headers. A Collector assembles results that consist of several messages.
//
// To send many records in one message, start with AppendNewline, AppendLength or AppendVarint, one for each value of
// MILLRACE_FRAMING.
//
// docs/results.md in Millrace's repository specifies the formats, and docs/protocol.md describes how another module imports this
// package.
package client

import (
	"fmt"
	"strconv"
	"strings"
)

// Headers of results and dead letters. The comment on each header names the messages that have it, then its value. docs/protocol.md has a
// table of the headers.
const (
	HeaderStream          = "Millrace-Stream"       // all: stream of the input
	HeaderSequence        = "Millrace-Sequence"     // all: sequence of the input in its stream
	HeaderSubject         = "Millrace-Subject"      // all: subject of the input
	HeaderID              = "Millrace-Id"           // all: id of the message instead of Nats-Msg-Id; only with exactly once and MILLRACE_RESULT_IDS=false
	HeaderContentType     = "Content-Type"          // result, dead letter of a record: type of the body; on a dead letter only if the record is JSON or an Arrow stream
	HeaderContentEncoding = "Content-Encoding"      // result: compression of the body; absent if the body isn't compressed
	HeaderOperators       = "Millrace-Operators"    // result: operators in order, with their parameters
	HeaderDeliveries      = "Millrace-Deliveries"   // dead letter, result: number of deliveries of the input; on a result only if the input was redelivered or the result was stored late
	HeaderRecords         = "Millrace-Records"      // result of a frame, or with a filter: number of records in the whole result
	HeaderFiltered        = "Millrace-Filtered"     // result with a filter: number of records that the filter left out
	HeaderAnnotation      = "Millrace-Annotation"   // result of documents or rows with annotations: name of the member or column that has the results
	HeaderPart            = "Millrace-Part"         // part of a result: i/n for part i of n, counted from 1
	HeaderCut             = "Millrace-Cut"          // part of a result: value that is the same on all parts of one cut
	HeaderFirstRecord     = "Millrace-First-Record" // part of a result: index of the part's first record in the frame, counted from 0; 0 in part 1

	HeaderRetryOf         = "Millrace-Retry-Of"         // input that `worker retry` sent, its result and dead letter: sequence of the first input, and `:` and the record's index if only a record was sent
	HeaderReason          = "Millrace-Reason"           // dead letter: reason as a fixed word, such as operator_error
	HeaderError           = "Millrace-Error"            // dead letter: error message
	HeaderOperator        = "Millrace-Operator"         // dead letter: operator that rejected the payload or failed on it; absent if unknown
	HeaderRecord          = "Millrace-Record"           // dead letter of a record: index of the record in its frame, counted from 0
	HeaderInput           = "Millrace-Input-Header"     // dead letter: `name: value` of a header of the input that can't keep its name; may occur several times
	HeaderOmitted         = "Millrace-Omitted"          // dead letter that is too large: omitted parts: `headers`, `payload`, `record`, `payload,headers` or `record,headers`
	HeaderPayloadSequence = "Millrace-Payload-Sequence" // dead letter that is too large: sequence of the message that has the payload or, for a record, the whole input
	HeaderPayloadBytes    = "Millrace-Payload-Bytes"    // dead letter whose payload is stored nowhere: length of the payload in bytes
	HeaderPayloadDigest   = "Millrace-Payload-Digest"   // dead letter whose payload is stored nowhere: `SHA-256=`, and the payload's hash in URL-safe base64
)

// Content types. A worker with MILLRACE_FRAMING=auto splits a message by its content type.
const (
	TypeJSON   = "application/json"                    // result of one record
	TypeNDJSON = "application/x-ndjson"                // frame of AppendNewline, and result of a frame
	TypeBinary = "application/octet-stream"            // result for Decode
	TypeArrow  = "application/vnd.apache.arrow.stream" // frame or result: see package millrace/client/arrow
	TypeLength = "application/vnd.millrace.length-delimited"
	TypeVarint = "application/vnd.millrace.varint-length-delimited"
	TypeArray  = "application/vnd.millrace.json-array" // frame that is a JSON array of records
)

// Part is the position of a message among all messages of the same result.
type Part struct {
	Index int // number of the part, from 1 to Count
	Count int
}

// ParsePart parses the value of HeaderPart, such as 2/3. It returns part 1 of 1 for the empty value, because a result without that
// header is complete.
func ParsePart(value string) (Part, error) {
	if value == "" {
		return Part{Index: 1, Count: 1}, nil
	}
	index, count, found := strings.Cut(value, "/")
	i, errIndex := strconv.ParseUint(index, 10, 31)
	n, errCount := strconv.ParseUint(count, 10, 31)
	if !found || errIndex != nil || errCount != nil || i < 1 || i > n {
		return Part{}, fmt.Errorf("%s is %q: want i/n with i from 1 to n", HeaderPart, value)
	}
	return Part{Index: int(i), Count: int(n)}, nil
}

// String returns the part in the format of HeaderPart.
func (p Part) String() string { return strconv.Itoa(p.Index) + "/" + strconv.Itoa(p.Count) }

// Input identifies an input by the stream and the sequence in its publish acknowledgement.
type Input struct {
	Stream   string
	Sequence uint64 // sequence in the stream, from 1
}

// InputOf returns the input of a result or of a dead letter, given the message's headers. It returns false for all other messages: commit
// markers and log entries of exclusive delivery, the server's delete markers, and payloads that are too large for their dead letter.
// Acknowledge and ignore such messages.
func InputOf(header map[string][]string) (Input, bool) {
	sequence, err := strconv.ParseUint(first(header, HeaderSequence), 10, 64)
	return Input{first(header, HeaderStream), sequence}, err == nil
}

// first returns the first value of a header, or the empty string if the header is absent.
func first(header map[string][]string, name string) string {
	if values := header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
