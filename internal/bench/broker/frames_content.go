package broker

import (
	"bytes"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

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

// form is the form of frames.
type form struct {
	framing  frame.Framing
	encoding compression.Encoding
	size     int // bytes of a record
	records  int // records of a frame
}

// mostFrameRecords bounds the records of a frame, so that the server accepts the result in one message.
const mostFrameRecords = 8192

// formOf returns a form whose frames have about that many bytes before compression.
func formOf(framing frame.Framing, encoding compression.Encoding, size, frameBytes int) form {
	return form{framing: framing, encoding: encoding, size: size, records: min(max(frameBytes/size, 1), mostFrameRecords)}
}

// differentFrames is the number of different frames in a load. The frames are repeated in turn, because compressing takes longer than
// anything that a round measures. Together they exceed the caches of the processor.
const differentFrames = 64

// frames is the content of messages of several records: text that compresses about as well as English.
type frames struct {
	form
	seed   uint64
	bodies func() [][]byte // makes the different frames in the first call
}

// vocabulary is the text of all frames.
var vocabulary = sync.OnceValue(func() *textframes.Text { return textframes.NewText(1) })

func newFrames(seed uint64, f form) *frames {
	c := &frames{form: f, seed: seed}
	c.bodies = sync.OnceValue(c.makeBodies)
	return c
}

// makeBodies makes the different frames, on all cores.
func (c *frames) makeBodies() [][]byte {
	bodies := make([][]byte, differentFrames)
	var next atomic.Int64
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			var compressor compression.Compressor
			for i := int(next.Add(1) - 1); i < len(bodies); i = int(next.Add(1) - 1) {
				body, err := textframes.Append(nil, c.framing, c.recordsOf(i))
				if err != nil {
					panic("broker: " + err.Error()) // the framings are constant
				}
				bodies[i] = body
				if c.encoding != compression.None {
					bodies[i] = compressor.Append(nil, c.encoding, body)
				}
			}
		})
	}
	group.Wait()
	return bodies
}

// recordsOf makes the records of message i.
func (c *frames) recordsOf(i int) [][]byte {
	text, set := vocabulary(), textframes.Seed(c.seed, i%differentFrames)
	all := make([]byte, 0, c.form.records*c.size+len("the longest word is shorter"))
	records := make([][]byte, c.form.records)
	for r := range records {
		all = text.Append(all, textframes.Seed(set, r), c.size)
		records[r] = all[r*c.size : (r+1)*c.size]
	}
	return records
}

func (c *frames) message(_ []byte, i int) []byte { return c.bodies()[i%differentFrames] }

func (c *frames) records() int     { return c.form.records }
func (c *frames) recordBytes() int { return c.size }

func (c *frames) bytes() int {
	sum := 0
	for _, b := range c.bodies() {
		sum += len(b)
	}
	return sum / differentFrames
}

func (c *frames) configure(o *ingest.Options) {
	o.Split = frame.Splitter{Framing: c.framing, MaxRecords: frame.DefaultMaxRecords, MaxBytes: frame.DefaultMaxBytes}
	o.Decompress, o.Format = c.encoding, operator.Arrow
}

func (c *frames) null() nullResult {
	var t table.Table
	t.Reset(bench.Parse(nullSize), c.form.records)
	for i := range c.form.records {
		t.SetLength(i, c.size)
	}
	return nullResult{
		body: t.Append(nil, operator.Arrow, 0, c.form.records),
		header: nats.Header{
			results.HeaderRecords: {strconv.Itoa(c.form.records)},
			contentType:           {table.ContentType(operator.Arrow, true)},
		},
	}
}

// checker implements content. The first frame and another one are compared with the reference. A frame that is repeated must have the
// same result again.
func (c *frames) checker(ops []operator.Operator, n int) func(i int, got []byte) error {
	different := min(n, differentFrames)
	sample := [2]int{0, int(c.seed % uint64(different))}
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
		if at != sample[0] && at != sample[1] {
			return nil
		}
		return table.Reference(ops, c.recordsOf(i), nil).Check(got, operator.Arrow, 0, c.form.records)
	}
}
