package unpack

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/invariants"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

// errShort means that there is too little memory to decompress a message ahead of the batches.
var errShort = errors.New("too little memory")

// Message is a message and its records. Everything except Open, TryOpen and Drop needs an opened message.
type Message struct {
	*buffers // from opening until Recycle

	Cursor frame.Cursor // position before the first record that no batch has

	Compressed, Decompressed int           // bytes of the body before and after decompression; 0 if it was not compressed
	Decompressing, Splitting time.Duration // time that unpacking took

	u  *Unpacker
	in Input

	mu     sync.Mutex // guards the other fields until the message is opened
	opened bool
	cost   int64 // bytes of memory that the message takes
	fault  error
}

// Records returns the number of records. It is 0 if Fault is not nil.
func (m *Message) Records() int { return m.split.Records() }

// Framed reports whether the message is a frame. Otherwise its body is one record.
func (m *Message) Framed() bool { return m.split.Framed() }

// Record returns the i-th record.
func (m *Message) Record(i int) []byte { return m.split.Record(i) }

// Fault returns why the message can't be split into records, as a *frame.Error or *compression.Error, or nil.
func (m *Message) Fault() error { return m.fault }

// Cost returns the bytes of memory that the message takes.
func (m *Message) Cost() int64 { return m.cost }

// Mark records how the processing of a record ended that has no results.
func (m *Message) Mark(i int, s record.Status) { m.Table.SetStatus(i, s) }

// Exclude marks a record before the first batch has records. No batch gets its bytes.
func (m *Message) Exclude(i int, s record.Status) {
	m.split.Exclude(i, s)
	m.Mark(i, s)
}

// Open unpacks the message, unless it is unpacked already. It takes the memory without waiting.
func (m *Message) Open() { m.open(true) }

// TryOpen is Open if there is memory. Otherwise it reports false.
func (m *Message) TryOpen() bool { return m.open(false) }

// open unpacks the message. Without must it leaves that to the next call if there is too little memory, and reports false.
func (m *Message) open(must bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened {
		return true
	}
	m.buffers = m.u.idle.take()
	if m.opened = m.unpack(must); !m.opened {
		m.release()
		m.Recycle()
	}
	return m.opened
}

// Drop gives back the memory of a message that is not processed any more.
func (m *Message) Drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened = true
	m.release()
}

// Recycle keeps the buffers for another message. No goroutine may use the records or their results any more.
func (m *Message) Recycle() {
	if m.fault == nil {
		m.u.idle.put(m.buffers)
	}
	m.buffers = nil
}

// release gives back the memory. m.mu is held.
func (m *Message) release() {
	m.u.memory.Give(m.cost)
	m.cost = 0
}

// take takes memory. It reports false if there is too little and must is not set.
func (m *Message) take(bytes int64, must bool) bool {
	if must {
		m.u.memory.Force(bytes)
	} else if !m.u.memory.Try(bytes) {
		return false
	}
	m.cost += bytes
	return true
}

// unpack decompresses and splits the message. It reports false if there is too little memory and must is not set.
func (m *Message) unpack(must bool) bool {
	body, err := m.decompressed(must)
	if errors.Is(err, errShort) {
		return false
	}
	if err == nil {
		err = m.splitBody(body)
	}
	if err != nil {
		m.release()
		m.Recycle()
		m.buffers, m.fault = &buffers{}, err
		return true
	}
	results := m.split.Inflated() + m.u.Results.cost(m.Records(), m.bytes())
	if !m.take(max(results, m.size()-m.cost), must) { // the buffers may be larger than this message needs
		return false
	}
	m.Cursor = m.split.Cursor()
	m.describe()
	return true
}

// guessedRatio is the assumed ratio of a compressed message that doesn't declare its size.
const guessedRatio = 4

// decompressed returns the body, decompressed if it was compressed. It returns errShort if there is too little memory and must is not
// set.
func (m *Message) decompressed(must bool) ([]byte, error) {
	body := m.in.Data()
	encoding, err := m.u.encoding(m.in.Headers())
	if err != nil || encoding == compression.None {
		return body, err
	}
	start := time.Now()
	m.Compressed = len(body)
	body, err = m.decompress(encoding, must)
	m.Decompressing += time.Since(start)
	m.Decompressed = len(body)
	return body, err
}

// decompress decompresses the body. Without must it first takes the memory for as many bytes as the message declares, or as are
// usual, and for more if that is too little.
func (m *Message) decompress(e compression.Encoding, must bool) ([]byte, error) {
	packed, most := m.in.Data(), m.u.Split.MaxBytes
	if must {
		return m.decompressWithin(e, most, true)
	}
	expected, ok := compression.Declared(e, packed)
	if !ok {
		expected = guessedRatio * int64(len(packed))
	}
	for limit := min(most, expected); ; limit = min(most, guessedRatio*max(limit, 1<<10)) {
		m.release()
		if !m.take(limit, false) {
			return nil, errShort
		}
		body, err := m.decompressWithin(e, limit, limit == most)
		if err == nil || limit == most || !errors.Is(err, compression.ErrTooLarge) {
			return body, err
		}
	}
}

// decompressWithin decompresses the body to at most limit bytes. The message holds the memory afterwards, unless that was too little
// and final is not set.
func (m *Message) decompressWithin(e compression.Encoding, limit int64, final bool) ([]byte, error) {
	d, _ := m.u.decompressors.Get().(*compression.Decompressor)
	if d == nil {
		d = &compression.Decompressor{}
	}
	defer m.u.decompressors.Put(d)
	body, err := d.Append(m.body[:0], e, m.in.Data(), limit)
	m.body = body[:0]
	if errors.Is(err, compression.ErrTooLarge) && !final {
		return nil, err
	}
	m.release()
	m.take(int64(cap(body)), true) // the memory is in use already
	return body, err
}

// bytes returns the length of all records, or 0 if the size of their results doesn't depend on it.
func (m *Message) bytes() (sum int64) {
	if operator.StringBytes(m.u.Results.Operators, 0, 1) == 0 {
		return 0
	}
	for i := range m.Records() {
		sum += int64(m.split.Length(i))
	}
	return sum
}

// splitBody finds the records of the body.
func (m *Message) splitBody(body []byte) error {
	start := time.Now()
	mediaType, err := m.u.mediaType(m.in.Headers())
	if err == nil {
		err = m.u.Split.Open(&m.split, mediaType, body)
	}
	m.Splitting += time.Since(start)
	if err == nil && !m.Framed() && m.split.Status(0) == record.TooLarge {
		most := m.u.Split.MaxRecord
		err = &frame.Error{Reason: frame.TooLarge, Offset: int64(most), Text: ExceedsBatch(m.split.Length(0), most)}
	}
	return err
}

// ExceedsBatch says that a payload or record of that many bytes is larger than a batch.
func ExceedsBatch(bytes, batch int) string {
	return fmt.Sprintf("%d bytes, and a batch takes %d: raise MILLRACE_BATCH_BYTES", bytes, batch)
}

// describe prepares the table for the results of the records.
func (m *Message) describe() {
	m.Table.Reset(m.u.Results.Operators, m.Records())
	for i := range m.Records() {
		m.Table.SetLength(i, m.split.Length(i))
	}
	for i, s := range m.split.Statuses() {
		m.Table.SetStatus(i, s)
	}
}

// buffers is the memory for the records of a message and for their results.
type buffers struct {
	Table   table.Table // results of the records
	Encoded []byte      // encoded results

	body  []byte // the decompressed body; unused if the message was not compressed
	split frame.Frame
	kept  int64 // bytes that count as kept while the buffers are idle
}

// size returns the bytes of memory that the buffers take.
func (b *buffers) size() int64 {
	return int64(unsafe.Sizeof(*b)) + int64(cap(b.Encoded)+cap(b.body)) + b.Table.Size() + b.split.Size()
}

// idleBuffers keeps buffers between messages. It is last in, first out, so only as many grow large as are in use at the same time.
type idleBuffers struct {
	retain func(before, now int64) bool // changes the count of memory that is kept; see New

	mu    sync.Mutex
	stack []*buffers
}

// take returns buffers, empty or with the memory of an earlier message.
func (i *idleBuffers) take() *buffers {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := len(i.stack) - 1
	if last < 0 {
		return &buffers{}
	}
	b := i.stack[last]
	i.stack[last] = nil
	i.stack = i.stack[:last]
	i.retain(b.kept, 0)
	return b
}

// put keeps buffers that no message uses, unless that is too much memory.
func (i *idleBuffers) put(b *buffers) {
	b.split.Reset() // releases the message
	invariants.Poison(b.body)
	invariants.Poison(b.Encoded)
	b.Table.Poison()
	if b.kept = b.size(); i.retain(0, b.kept) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.stack = append(i.stack, b)
	}
}
