package broker

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/bench"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/table"
	"millrace/internal/textframes"
)

// load describes the messages of one round. Message i is input i+1 of the stream.
type load struct {
	*content
	n     int
	every time.Duration // interval between messages; 0 means that all are stored before the worker starts
}

// form describes the messages of a load.
type form struct {
	framing  frame.Framing
	encoding compression.Encoding
	size     int // bytes of a record
	records  int // records of a message
}

// single returns the form of messages with one record each, without framing.
func single(size int) form { return form{size: size, records: 1} }

// maxFrameRecords is the maximum number of records in a frame. The result of such a frame fits into one message.
const maxFrameRecords = 8192

// filled returns the form with records of size bytes. A frame gets as many records as fit into frameBytes, but at most
// maxFrameRecords.
func (f form) filled(size, frameBytes int) form {
	f.size, f.records = size, min(max(frameBytes/size, 1), maxFrameRecords)
	return f
}

// content generates the messages of one form and checks their results.
//
// A message of one record is random and unique. Frames contain text that compresses about as well as English. They
// repeat after differentFrames messages, because making and compressing them takes longer than the measured work.
type content struct {
	form
	seed   uint64
	frames func() [][]byte // returns the different frames; the first call makes them
}

// differentFrames is the number of different frames. Together, they exceed a processor's caches. The number is prime,
// so messages at the same position in two batches differ.
const differentFrames = 61

// vocabulary returns the text generator of all frames.
var vocabulary = sync.OnceValue(func() *textframes.Text { return textframes.NewText(1) })

func newContent(f form, seed uint64) *content {
	c := &content{form: f, seed: seed}
	c.frames = sync.OnceValue(c.makeFrames)
	return c
}

// makeFrames returns the different frames. It uses all cores.
func (c *content) makeFrames() [][]byte {
	frames := make([][]byte, differentFrames)
	var next atomic.Int64
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			var compressor compression.Compressor
			for i := int(next.Add(1) - 1); i < len(frames); i = int(next.Add(1) - 1) {
				body, err := textframes.Append(nil, c.framing, c.recordsOf(i))
				if err != nil {
					panic("broker: " + err.Error()) // the framings are constant
				}
				if c.encoding != compression.None {
					body = compressor.Append(nil, c.encoding, body)
				}
				frames[i] = body
			}
		})
	}
	group.Wait()
	return frames
}

// recordsOf returns the records of message i.
func (c *content) recordsOf(i int) [][]byte {
	if c.framing == frame.None {
		return [][]byte{c.message(i)}
	}
	text, set := vocabulary(), textframes.Seed(c.seed, i%differentFrames)
	records := make([][]byte, c.records)
	for r := range records {
		records[r] = text.Append(nil, textframes.Seed(set, r), c.size)
	}
	return records
}

// message returns message i. The caller must not change it.
func (c *content) message(i int) []byte {
	if c.framing != frame.None {
		return c.frames()[i%differentFrames]
	}
	body := make([]byte, c.size)
	bench.Document(body, c.seed, i)
	return body
}

// bytes returns the mean size of a message.
func (c *content) bytes() int {
	if c.framing == frame.None {
		return c.size
	}
	sum := 0
	for _, f := range c.frames() {
		sum += len(f)
	}
	return sum / differentFrames
}

func (c *content) splitter() frame.Splitter {
	return frame.Splitter{Framing: c.framing, MaxRecords: frame.DefaultMaxRecords, MaxBytes: frame.DefaultMaxBytes}
}

func (c *content) format() operator.Format {
	if c.framing == frame.None {
		return operator.JSON
	}
	return operator.Arrow
}

// configure sets the options of a Millrace worker that depend on the content.
func (c *content) configure(o *ingest.Options) {
	o.Format = c.format()
	if c.framing != frame.None {
		o.Split, o.Decompress = c.splitter(), c.encoding
	}
}

// header returns the headers of a result that depend on the content.
func (c *content) header() nats.Header {
	h := nats.Header{"Content-Type": {table.ContentType(c.format(), c.framing != frame.None)}}
	if c.framing != frame.None {
		h[results.HeaderRecords] = []string{strconv.Itoa(c.records)}
	}
	return h
}

// encode returns the body of a result with the given table of records.
func (c *content) encode(t *table.Table) []byte {
	if c.framing == frame.None {
		return t.AppendSingle(nil, c.format())
	}
	return t.Append(nil, c.format(), 0, c.records)
}

// nullSize is the operator that determines the size of the null worker's results.
const nullSize = "crc32c"

// nullResult returns the result that the null worker stores for each message.
func (c *content) nullResult() []byte {
	var t table.Table
	t.Reset(bench.Parse(nullSize), c.records)
	for i := range c.records {
		t.SetLength(i, c.size)
	}
	return c.encode(&t)
}

// sampleBytes is the approximate number of payload bytes that a check compares with the reference. The reference takes
// a second for a few megabytes.
const sampleBytes = 256 << 10

// checker returns a function that checks got, the result of message i of n. If ops is nil, every result must be the
// null result. Only one goroutine may call the function.
func (c *content) checker(ops []operator.Operator, n int) func(i int, got []byte) error {
	if ops == nil {
		null := c.nullResult()
		return func(_ int, got []byte) error {
			if !bytes.Equal(got, null) {
				return fmt.Errorf("the body is %q, want %q", got, null)
			}
			return nil
		}
	}
	if c.framing != frame.None {
		return c.frameChecker(ops, n)
	}
	every := max(n*c.size/sampleBytes, 1)
	return func(i int, got []byte) error {
		if i != 0 && i != n-1 && i%every != 0 {
			return nil
		}
		return operator.JSON.Check(ops, c.message(i), got)
	}
}

// frameChecker implements checker for frames. It compares the results of the first frame and of one other frame with
// the reference. Equal frames must have equal results.
func (c *content) frameChecker(ops []operator.Operator, n int) func(i int, got []byte) error {
	different := min(n, differentFrames)
	other := int(c.seed % uint64(different))
	first := make([][]byte, different)
	return func(i int, got []byte) error {
		at := i % differentFrames
		if first[at] != nil {
			if !bytes.Equal(got, first[at]) {
				return errors.New("its frame equals that of an earlier result, but the results differ")
			}
			return nil
		}
		first[at] = bytes.Clone(got)
		if at != 0 && at != other {
			return nil
		}
		return table.Reference(ops, c.recordsOf(i), nil).Check(got, c.format(), 0, c.records)
	}
}
