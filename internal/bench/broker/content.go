package broker

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/internal/bench"
	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/frame"
	"millrace/internal/textframes"
)

// load describes the messages of one round. Message i is input i+1 of the stream.
type load struct {
	*content
	n     int
	every time.Duration // interval between messages; 0 means that all are stored before the worker starts
}

// content generates the messages of one form and checks their results.
//
// A message of one record is random and unique. Frames contain text that compresses about as well as English. They
// repeat after differentFrames messages, because making and compressing them takes longer than the measured work. Only
// frames with near-duplicates don't repeat.
type content struct {
	form
	seed uint64

	mu     sync.Mutex
	frames [][]byte // the most recent frames; nil at first
	first  int      // message number of the first frame
}

// differentFrames is the number of different frames, and the number of frames made at a time. All frames together exceed a
// processor's caches. The number is prime, so messages at the same position in two batches differ.
const differentFrames = 61

// vocabulary returns the text generator of all frames.
var vocabulary = sync.OnceValue(func() *corpus.Vocabulary { return corpus.NewVocabulary(1) })

func newContent(f form, seed uint64) *content {
	return &content{form: f, seed: seed}
}

// framesFrom returns the frames of the messages [first, first+differentFrames). It uses all cores to make them.
func (c *content) framesFrom(first int) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frames == nil || c.first != first {
		c.frames, c.first = c.makeFrames(first), first
	}
	return c.frames
}

func (c *content) makeFrames(first int) [][]byte {
	frames := make([][]byte, differentFrames)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range frames {
		group.Go(func() error {
			records, _ := c.recordsOf(first + i)
			body, err := textframes.Append(nil, c.framing, records)
			frames[i] = new(compression.Compressor).Append(nil, c.encoding, body)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		panic("broker: " + err.Error()) // the framings are constant
	}
	return frames
}

// recordsOf returns the records of message i, and the inputs of the operators. Without a field, the records are the inputs.
func (c *content) recordsOf(i int) (records, inputs [][]byte) {
	if c.framing == frame.None {
		records = [][]byte{c.message(i)}
		return records, records
	}
	if c.copies {
		records = c.copiesOf(i)
		return records, records
	}
	text, set := vocabulary(), corpus.Seed(c.seed, i%differentFrames)
	records, inputs = make([][]byte, c.records), make([][]byte, c.records)
	for r := range records {
		seed := corpus.Seed(set, r)
		if !c.documents {
			records[r] = text.Append(nil, seed, c.size)
			inputs[r] = records[r]
			continue
		}
		around := len(textframes.AppendDocument(nil, r, textField, nil))
		inputs[r] = text.AppendUTF8(nil, seed, max(c.size-around, 0))
		records[r] = textframes.AppendDocument(nil, r, textField, inputs[r])
		if c.field == "" {
			inputs[r] = records[r]
		}
	}
	return records, inputs
}

// textField is the member of each document that has its text.
const textField = "text"

// minDocument is the size of the smallest document in bytes.
const minDocument = 32

// message returns message i. The caller must not change it.
func (c *content) message(i int) []byte {
	if c.framing != frame.None {
		first := 0
		if c.copies {
			first = i - i%differentFrames
		}
		return c.framesFrom(first)[i%differentFrames]
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
	for _, f := range c.framesFrom(0) {
		sum += len(f)
	}
	return sum / differentFrames
}
