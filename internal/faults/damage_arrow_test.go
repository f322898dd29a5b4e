package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/results"
)

// arrowStream is a frame that consists of an Arrow stream: its schema, a message for each record batch, and the end.
// Its methods damage the written stream.
type arrowStream struct {
	body    []byte
	starts  []int    // byte positions of the messages
	records [][]byte // records that can be read if the stream isn't damaged
	damage  *damage  // nil if the records can be read
}

// recordsPerBatch is the number of records in each record batch of an arrowStream, except the last.
const recordsPerBatch = 20

// newArrowStream writes a stream with one binary column.
func newArrowStream(records [][]byte, options ...ipc.Option) (*arrowStream, error) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "record", Type: arrow.BinaryTypes.Binary}}, nil)
	options = append(options, ipc.WithSchema(schema))
	var schemaAlone, out bytes.Buffer
	if err := ipc.NewWriter(&schemaAlone, options...).Close(); err != nil {
		return nil, err
	}
	s := &arrowStream{records: records, starts: []int{0, schemaAlone.Len() - endOfStream}}
	w := ipc.NewWriter(&out, options...)
	for some := range slices.Chunk(records, recordsPerBatch) {
		b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
		b.AppendValues(some, nil)
		batch := array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, int64(len(some)))
		if err := w.Write(batch); err != nil {
			return nil, err
		}
		s.starts = append(s.starts, out.Len())
	}
	err := w.Close()
	s.body = out.Bytes()
	return s, err
}

const (
	// endOfStream is the size in bytes of the end of a stream: the marker that starts each message, and a length of 0.
	endOfStream = 8

	// head is the size in bytes of a message's start: the marker, and the length of the metadata.
	head = 8

	zstdMagic = "\x28\xb5\x2f\xfd"
)

func (a *arrowStream) batches() int { return len(a.starts) - 2 }

// truncate keeps the first n bytes. The stream may end between two messages, but not before the end of the schema.
func (a *arrowStream) truncate(n int) {
	k, between := slices.BinarySearch(a.starts, n)
	a.body = a.body[:n]
	if between && n > 0 {
		a.records = a.records[:min(len(a.records), (k-1)*recordsPerBatch)]
		return
	}
	at := a.starts[max(k-1, 0)]
	a.damage = &damage{results.InvalidFrame, at, min(at+4, n)} // the fault is at the message or in the second half of its head
}

// lengthen makes the metadata of message k longer than the body.
func (a *arrowStream) lengthen(k int) {
	at := a.starts[k]
	a.body[at+head-1] ^= 1 << 6
	a.damage = &damage{results.InvalidFrame, at, at}
}

// misplace moves the end of record i outside the values of its record batch.
func (a *arrowStream) misplace(i int) {
	at := a.starts[1+i/recordsPerBatch]
	offsets := at + head + int(binary.LittleEndian.Uint32(a.body[at+head/2:])) // the offsets follow the metadata directly, because there is no null bitmap
	at = offsets + 4*(1+i%recordsPerBatch)
	a.body[at+3] = 0x7f
	a.damage = &damage{results.InvalidFrame, at, at}
}

// spoil corrupts the last compressed buffer, which follows its length.
func (a *arrowStream) spoil() error {
	at := bytes.LastIndex(a.body, []byte(zstdMagic))
	if at < 0 {
		return fmt.Errorf("no buffer of %d bytes is compressed", len(a.body))
	}
	a.body[at+1] ^= 0xff
	a.damage = &damage{results.InvalidFrame, at - 8, at - 8}
	return nil
}

// damagedArrow returns the i-th stream. Two of six streams are undamaged if they have records.
func (r *rig) damagedArrow(i int, records [][]byte) (*arrowStream, error) {
	var options []ipc.Option
	kind := i % 6
	if kind >= 4 {
		options = []ipc.Option{ipc.WithZstd()}
	}
	s, err := newArrowStream(records, options...)
	if err != nil {
		return nil, err
	}
	switch rng := r.damageRNG(i); {
	case kind == 0:
		s.truncate(rng.IntN(len(s.body)))
	case kind == 1:
		s.lengthen(rng.IntN(1 + s.batches()))
	case kind == 2 && len(records) > 0:
		s.misplace(rng.IntN(len(records)))
	case kind == 4 && len(records) > 0:
		err = s.spoil()
	}
	return s, err
}

// TestFramesArrowDamaged truncates some Arrow streams, between or within their record batches. In other streams it
// corrupts lengths, offsets and compressed buffers. A stream that ends between two messages keeps its earlier records.
// Every other damaged stream becomes a dead letter.
func TestFramesArrowDamaged(t *testing.T) {
	eachMode(t, func(r *rig) {
		n := times(6000, 600)
		r.set("MILLRACE_FRAMING=arrow")
		inputs := r.framesOf(upTo(100), appendLength)
		stream := func(i int) *arrowStream {
			records, _ := splitLengths(inputs(i).Data)
			s, err := r.damagedArrow(i, records)
			if err != nil {
				panic(err)
			}
			return s
		}
		r.split = func(h nats.Header, body []byte) ([][]byte, *damage) {
			i, err := strconv.Atoi(h.Get("Input"))
			if err != nil {
				panic(fmt.Sprintf("a frame without its number: %v", h))
			}
			s := stream(i)
			if !bytes.Equal(s.body, body) {
				panic(fmt.Sprintf("frame %d is stored with other bytes", i))
			}
			if s.damage != nil {
				return nil, s.damage
			}
			return s.records, nil
		}
		r.feedDamaged("frames: Arrow, truncated or corrupted", n, func(i int) *nats.Msg {
			m := inputs(i)
			m.Data = stream(i).body
			return m
		})
	})
}
