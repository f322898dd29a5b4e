package broker

import (
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
	"millrace/internal/operator"
)

// nullOperators stand in the header of a worker that computes nothing.
const nullOperators = "none"

// result is the message that Millrace stores for an input: the same subject, the same headers, the same id.
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
			jetstream.MsgIDHeader:   {messageID(meta.Stream, meta.Sequence.Stream) + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)},
		},
	}, nil
}

// messageID is the beginning of the id under which the result of an input is stored once. Behind it is the time at which the input
// was stored, in nanoseconds.
func messageID(stream string, sequence uint64) string {
	return stream + ":" + strconv.FormatUint(sequence, 10) + ":"
}

// nullBody is as long as the result of crc32c for a payload of size bytes.
func nullBody(size int) []byte {
	op, err := operator.Parse("crc32c")
	if err != nil {
		panic("broker: " + err.Error()) // the spec is right
	}
	return operator.JSON.Append(nil, []operator.Operator{op}, size, [][]byte{make([]byte, op.Stride())})
}

const (
	// pullMessages and pullBytes bound what a pull request brings, as the worker bounds it.
	pullMessages = 4096
	pullBytes    = 2 << 20

	// subjectBytes is more than subject and reply subject take, which the server counts too.
	subjectBytes = 64 << 10
)

// pullBounds are the bounds of a pull over nc. Those in bytes must let the largest message through.
func pullBounds(nc *nats.Conn) jetstream.PullMessagesOpt {
	return jetstream.PullMaxMessagesWithBytesLimit(pullMessages, max(pullBytes, int(nc.MaxPayload())+subjectBytes))
}
