package inflight

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/record"
)

// unpacker decompresses messages and splits them into records. It works ahead of the batchers, on several messages at once, while
// there is memory. A message for which there was none is unpacked when a batcher needs it.
type unpacker struct {
	split      frame.Splitter
	decompress compression.Encoding
	costs      Costs
	memory     *budget

	ahead         chan struct{} // holds a token for each goroutine that unpacks ahead
	decompressors sync.Pool     // of *compression.Decompressor
	frames        sync.Pool     // of *Frame
}

// guessedRatio is the assumed ratio of a compressed message that doesn't declare its size.
const guessedRatio = 4

// keptBody is the largest buffer in bytes that is kept for another message.
const keptBody = 8 << 20

func newUnpacker(s Settings, memory *budget) *unpacker {
	s.Split.MaxBytes = cmp.Or(s.Split.MaxBytes, frame.DefaultMaxBytes)
	return &unpacker{
		split: s.Split, decompress: s.Decompress, costs: s.Costs, memory: memory,
		ahead: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
}

// Splits reports whether messages may be frames or compressed, so that the size of a message does not tell that of its records.
func (p *Pool) Splits() bool {
	return p.unpacker.split.Framing != frame.None || p.unpacker.decompress != compression.None
}

// Unpack begins to unpack a delivery's message. It doesn't wait. It does nothing if messages are single records.
func (p *Pool) Unpack(d *Delivery) {
	u := p.unpacker
	if !p.Splits() || u.plain(d) {
		return
	}
	f, _ := u.frames.Get().(*Frame)
	if f == nil {
		f = &Frame{}
	}
	f.reset(u)
	d.Frame, f.d = f, *d
	f.users.Add(1)
	go func() {
		defer f.users.Add(-1)
		u.ahead <- struct{}{}
		f.open(false)
		<-u.ahead
	}()
}

// The headers that tell how a message is to be read.
const (
	contentType     = "Content-Type"
	contentEncoding = "Content-Encoding"
)

// plain reports whether a message is one record, as it is.
func (u *unpacker) plain(d *Delivery) bool {
	h := d.Msg.Headers()
	single := u.split.Framing == frame.None || u.split.Framing == frame.Auto && frame.FramingOf(h.Get(contentType)) == frame.None
	asIs := u.decompress == compression.None || u.decompress == compression.Auto && h.Get(contentEncoding) == ""
	return single && asIs && len(d.Msg.Data()) <= u.split.MaxRecord
}

// reuse keeps a frame's memory for another message.
func (u *unpacker) reuse(f *Frame) {
	if f.missing.Load() == 0 && f.users.Load() == 0 && cap(f.body) <= keptBody {
		f.split.Reset()
		f.d = Delivery{} // release the message
		u.frames.Put(f)
	}
}

// reset prepares a frame for another message.
func (f *Frame) reset(u *unpacker) {
	*f = Frame{u: u, Table: f.Table, encoded: f.encoded[:0], split: f.split, body: f.body[:0], done: make(chan struct{})}
	f.missing.Store(1)
}

// Open unpacks the message, unless it is unpacked already. It takes the memory without waiting.
func (f *Frame) Open() { f.open(true) }

// TryOpen is Open if there is memory. Otherwise it reports false.
func (f *Frame) TryOpen() bool { return f.open(false) }

// open unpacks the message. Without must it leaves that to the next call if there is too little memory, and reports false.
func (f *Frame) open(must bool) bool {
	f.opening.Lock()
	defer f.opening.Unlock()
	if f.opened {
		return true
	}
	if f.opened = f.unpack(must); !f.opened {
		f.release()
	}
	return f.opened
}

// drop gives back the memory of a frame that is not processed.
func (f *Frame) drop() {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.opened = true
	f.release()
}

// release gives back the frame's memory. f.opening is held.
func (f *Frame) release() {
	f.u.memory.give(f.cost)
	f.cost = 0
}

// take takes memory for the frame. It reports false if there is too little and must is not set.
func (f *Frame) take(bytes int64, must bool) bool {
	if must {
		f.u.memory.force(bytes)
	} else if !f.u.memory.try(bytes) {
		return false
	}
	f.cost += bytes
	return true
}

// unpack decompresses and splits the message. It reports false if there is too little memory and must is not set.
func (f *Frame) unpack(must bool) bool {
	body := f.d.Msg.Data()
	start := time.Now()
	encoding, err := f.encoding()
	if f.compressed = err == nil && encoding != compression.None; f.compressed {
		body, err = f.decompress(encoding, must)
		end := time.Now()
		f.decompressing += end.Sub(start)
		start = end
		if errors.Is(err, errShort) {
			return false
		}
		f.unpacked = len(body)
	}
	if err == nil {
		err = f.u.split.Open(&f.split, f.d.Msg.Headers().Get(contentType), body)
		f.splitting += time.Since(start)
	}
	if err == nil && !f.split.Framed() && f.split.Status(0) == record.TooLarge {
		err = &frame.Error{Reason: frame.TooLarge, Offset: int64(f.u.split.MaxRecord), Text: ExceedsBatch(f.split.Length(0), f.u.split.MaxRecord)}
	}
	if f.fault = err; err != nil {
		f.body = nil
		f.release()
		return true
	}
	n := f.split.Records()
	if !f.take(f.split.Inflated()+f.u.costs.frame(n), must) {
		return false
	}
	f.cursor = f.split.Cursor()
	f.describe(n)
	return true
}

// describe prepares the table for the results of n records.
func (f *Frame) describe(n int) {
	f.Table.Reset(f.u.costs.operators, n)
	for i := range n {
		f.Table.SetLength(i, f.split.Length(i))
	}
	for i, s := range f.split.Statuses() {
		f.Table.SetStatus(i, s)
	}
}

// ExceedsBatch says that a payload or record of that many bytes is larger than a batch.
func ExceedsBatch(bytes, batch int) string {
	return fmt.Sprintf("%d bytes, and a batch takes %d: raise MILLRACE_BATCH_BYTES", bytes, batch)
}

// encoding returns how the body is compressed.
func (f *Frame) encoding() (compression.Encoding, error) {
	if f.u.decompress != compression.Auto {
		return f.u.decompress, nil
	}
	return compression.FromHeader(f.d.Msg.Headers().Get(contentEncoding))
}

// errShort means that there is too little memory to decompress a message ahead of the batchers.
var errShort = errors.New("too little memory")

// decompress decompresses the body. Without must it first takes the memory for as many bytes as the message declares, or as are
// usual, and for more if that is too little.
func (f *Frame) decompress(e compression.Encoding, must bool) ([]byte, error) {
	packed, most := f.d.Msg.Data(), f.u.split.MaxBytes
	if must {
		return f.decompressWithin(e, most, true)
	}
	expected, ok := compression.Declared(e, packed)
	if !ok {
		expected = guessedRatio * int64(len(packed))
	}
	for limit := min(most, expected); ; limit = min(most, guessedRatio*max(limit, 1<<10)) {
		f.release()
		if !f.take(limit, false) {
			f.body = nil // it counts only while the frame holds memory
			return nil, errShort
		}
		body, err := f.decompressWithin(e, limit, limit == most)
		if err == nil || limit == most || !errors.Is(err, compression.ErrTooLarge) {
			return body, err
		}
	}
}

// decompressWithin decompresses the body to at most limit bytes. The frame holds the memory afterwards, unless that was too little
// and final is not set.
func (f *Frame) decompressWithin(e compression.Encoding, limit int64, final bool) ([]byte, error) {
	d, _ := f.u.decompressors.Get().(*compression.Decompressor)
	if d == nil {
		d = &compression.Decompressor{}
	}
	defer f.u.decompressors.Put(d)
	body, err := d.Append(f.body[:0], e, f.d.Msg.Data(), limit)
	f.body = body[:0]
	if errors.Is(err, compression.ErrTooLarge) && !final {
		return nil, err
	}
	f.release()
	f.take(int64(cap(body)), true) // the memory is in use already
	return body, err
}
