package broker

import (
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
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
			jetstream.MsgIDHeader:   {messageID(meta.Stream, meta.Sequence.Stream) + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)},
		},
	}, nil
}

// messageID is the beginning of the ID that makes the server store the result of an input only once. The rest is the
// time at which the input was stored, in nanoseconds.
func messageID(stream string, sequence uint64) string {
	return stream + ":" + strconv.FormatUint(sequence, 10) + ":"
}

// nullBody returns a body with the length of a crc32c result for a payload of size bytes.
func nullBody(size int) []byte {
	ops := bench.Parse("crc32c")
	return operator.JSON.Append(nil, ops, size, [][]byte{make([]byte, ops[0].Stride())})
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
