package client

import (
	"fmt"
	"strconv"
	"strings"
)

// Headers of results and dead letters.
const (
	HeaderStream     = "Millrace-Stream"     // stream of the input
	HeaderSequence   = "Millrace-Sequence"   // sequence of the input in its stream
	HeaderSubject    = "Millrace-Subject"    // subject of the input
	HeaderOperators  = "Millrace-Operators"  // on a result: the operators in order, with their parameters
	HeaderDeliveries = "Millrace-Deliveries" // how often the input was delivered
	HeaderID         = "Millrace-Id"         // the message's id, with MILLRACE_RESULT_IDS=false; otherwise Nats-Msg-Id has it

	HeaderRecords     = "Millrace-Records"      // on a result of a frame: number of records of the whole frame
	HeaderPart        = "Millrace-Part"         // on a result in several messages: see ParsePart
	HeaderCut         = "Millrace-Cut"          // on a result in several messages: the same on all parts of one cut, see Collector
	HeaderFirstRecord = "Millrace-First-Record" // on a result in several messages: index in the input of this message's first record

	HeaderRecord          = "Millrace-Record"           // on a dead letter of one record of a frame: its index in the input
	HeaderOperator        = "Millrace-Operator"         // on a dead letter: the operator that refused the payload or failed on it; absent if it isn't known
	HeaderReason          = "Millrace-Reason"           // on a dead letter: why it was given up, for programs
	HeaderError           = "Millrace-Error"            // on a dead letter: why it was given up, for people
	HeaderInput           = "Millrace-Input-Header"     // on a dead letter: "name: value" of a header of the input that can't keep its name
	HeaderOmitted         = "Millrace-Omitted"          // on a dead letter that is too large: headers; payload or record; or both, separated by a comma
	HeaderPayloadSequence = "Millrace-Payload-Sequence" // on a dead letter without its payload or record: sequence of the message with the payload, or with the whole input that the record is part of
	HeaderPayloadBytes    = "Millrace-Payload-Bytes"    // on a dead letter whose payload or record is stored nowhere: its length
	HeaderPayloadDigest   = "Millrace-Payload-Digest"   // on a dead letter whose payload or record is stored nowhere: SHA-256= and its hash in URL-safe base64
)

// Headers that messages share with HTTP.
const (
	HeaderContentType     = "Content-Type"
	HeaderContentEncoding = "Content-Encoding"
)

// Content types. A worker with MILLRACE_FRAMING=auto splits a message by its content type.
const (
	TypeJSON   = "application/json"                    // result of one record
	TypeNDJSON = "application/x-ndjson"                // frame of AppendNewline, and result of a frame
	TypeBinary = "application/octet-stream"            // result for Decode
	TypeArrow  = "application/vnd.apache.arrow.stream" // frame or result: see package millrace/client/arrow
	TypeLength = "application/vnd.millrace.length-delimited"
	TypeVarint = "application/vnd.millrace.varint-length-delimited"
)

// Part is the place of one result message among those of the same input.
type Part struct {
	Index int // from 1 to Count
	Count int
}

// ParsePart parses the value of HeaderPart, such as 2/3. Without that header, a result is complete. So the empty value is part 1 of 1.
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

// String returns the part as HeaderPart has it.
func (p Part) String() string { return strconv.Itoa(p.Index) + "/" + strconv.Itoa(p.Count) }
