package arrowipc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	flatbuffers "github.com/google/flatbuffers/go"
)

// The parts of an Arrow message's metadata that checkMessages reads, as Arrow's Message.fbs numbers them: field i of a table is in
// slot 4 + 2*i.
const (
	slotHeaderType     = 6
	slotHeader         = 8
	slotBodyBytes      = 10
	slotCustomMetadata = 12
	slotCompression    = 10 // of a record batch
	headerRecordBatch  = 3
)

// checkMessages checks the messages that follow a schema. arrow-go allocates whatever memory the metadata of a message names, and a
// process can't survive that. So this function refuses what an Encoder never writes: other messages than batches, metadata of the
// user, and compression. It leaves all other checks to arrow-go.
func checkMessages(body []byte) error {
	for at := 0; at < len(body); {
		rest := body[at:]
		if len(rest) < len(endOfStream) || binary.LittleEndian.Uint32(rest) != math.MaxUint32 {
			return errors.New("a message doesn't start with the number 0xffffffff and its length")
		}
		n := binary.LittleEndian.Uint32(rest[4:])
		if n == 0 {
			return nil // the end of the stream
		}
		if uint64(n) > uint64(len(rest)-8) {
			return fmt.Errorf("metadata of %d bytes, and %d bytes follow", n, len(rest)-8)
		}
		bodyBytes, err := checkBatch(rest[8 : 8+n])
		if err != nil {
			return err
		}
		if have := len(rest) - 8 - int(n); bodyBytes < 0 || bodyBytes > int64(have) {
			return fmt.Errorf("batch of %d bytes, and %d bytes follow", bodyBytes, have)
		}
		at += 8 + int(n) + int(bodyBytes)
	}
	return nil
}

// checkBatch checks a message's metadata and returns the length of the body that follows it. The accessors of flatbuffers panic if
// an offset is out of range. The caller recovers.
func checkBatch(metadata []byte) (bodyBytes int64, err error) {
	message := flatbuffers.Table{Bytes: metadata, Pos: flatbuffers.GetUOffsetT(metadata)}
	field := func(slot flatbuffers.VOffsetT) flatbuffers.UOffsetT {
		return flatbuffers.UOffsetT(message.Offset(slot))
	}
	if at := field(slotHeaderType); at == 0 || message.GetByte(message.Pos+at) != headerRecordBatch || field(slotHeader) == 0 {
		return 0, errors.New("a message isn't a record batch")
	}
	if at := field(slotCustomMetadata); at != 0 && message.VectorLen(at) != 0 {
		return 0, errors.New("a record batch has metadata of its own")
	}
	var batch flatbuffers.Table
	message.Union(&batch, field(slotHeader))
	if batch.Offset(slotCompression) != 0 {
		return 0, errors.New("a record batch is compressed")
	}
	if at := field(slotBodyBytes); at != 0 {
		bodyBytes = message.GetInt64(message.Pos + at)
	}
	return bodyBytes, nil
}
