package unpack

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/record"
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
