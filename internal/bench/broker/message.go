package broker

import (
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// nullOperators is the header of a worker that computes nothing.
const nullOperators = "none"

// result creates the message that Millrace stores for an input, with the same subject, headers and ID.
func result(in jetstream.Msg, operators string, body []byte) (*nats.Msg, error) {
	meta, err := in.Metadata()
	if err != nil {
		return nil, err
	}
	from := published(in.Subject())
	return &nats.Msg{
		Subject: mapped(from),
		Data:    body,
		Header: nats.Header{
			results.HeaderStream:    {meta.Stream},
			results.HeaderSequence:  {strconv.FormatUint(meta.Sequence.Stream, 10)},
			results.HeaderSubject:   {from},
			results.HeaderOperators: {operators},
			contentType:             {table.ContentType(operator.JSON, false)},
			jetstream.MsgIDHeader:   {messageID(meta.Stream, meta.Sequence.Stream) + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)},
		},
	}, nil
}

// messageID is the beginning of the ID that makes the server store the result of an input only once. The rest is the
// time at which the input was stored, in nanoseconds.
func messageID(stream string, sequence uint64) string {
	return stream + ":" + strconv.FormatUint(sequence, 10) + ":"
}

// nullSize is the operator whose results have the size of those of workers that compute nothing.
const nullSize = "crc32c"

const contentType = "Content-Type"

// nullResult is what a worker that computes nothing stores for an input.
type nullResult struct {
	body   []byte
	header nats.Header // in addition to those of every result, or in place of them
}

// message returns the result of an input.
func (r nullResult) message(in jetstream.Msg) (*nats.Msg, error) {
	m, err := result(in, nullOperators, r.body)
	if err == nil {
		maps.Copy(m.Header, r.header)
	}
	return m, err
}

const (
	// pullMessages and pullBytes bound a pull request, as in the worker.
	pullMessages = 4096
	pullBytes    = 2 << 20

	// subjectBytes is an upper bound for the subject and the reply subject, which the server counts too.
	subjectBytes = 64 << 10
)

// pullBounds returns the bounds of a pull over nc. The bound in bytes must admit the largest message.
func pullBounds(nc *nats.Conn) jetstream.PullMessagesOpt {
	return jetstream.PullMaxMessagesWithBytesLimit(pullMessages, max(pullBytes, int(nc.MaxPayload())+subjectBytes))
}
