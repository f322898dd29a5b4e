package inflight

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/invariants"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

// Input is a received message.
type Input interface {
	Data() []byte
	Headers() nats.Header
}

// Unpacker decompresses messages and splits them into records.
//
// While memory is free, an Unpacker unpacks several messages at once, ahead of the goroutines that fill batches. Any other message
// is unpacked when a batch needs it. The memory of an Unpacked includes the decompressed body, the index of the records, and the
// table of their results. It doesn't include the received body.
type Unpacker struct {
	*memory.Budget
	ahead         chan struct{} // limits the goroutines that unpack ahead
	decompressors sync.Pool     // contains *compression.Decompressor

	mu   sync.Mutex
	idle []*buffers // a stack, so there are at most as many large buffers as messages in use at once; guarded by mu
}

// NewUnpacker returns an Unpacker. The budget describes the messages, and counts their memory and the idle buffers.
func NewUnpacker(b *memory.Budget) *Unpacker {
	return &Unpacker{Budget: b, ahead: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// IsPlain reports whether in is a single uncompressed record that fits into a batch and has a result in any case.
func (u *Unpacker) IsPlain(in Input) bool {
	if u.Selects() || u.Split.Selects() || operator.HasState(u.Operators) {
		return false
	}
	mediaType, unclear := u.mediaType(in.Headers())
	encoding, unknown := u.encoding(in.Headers())
	single := u.Split.Framing == frame.None || u.Split.Framing == frame.Auto && frame.FramingOf(mediaType) == frame.None
	return unclear == nil && unknown == nil && single && encoding == compression.None && len(in.Data()) <= u.Split.MaxRecord
}

// Start starts a goroutine that unpacks in into m, if enough memory is free. m must be the zero value.
func (u *Unpacker) Start(m *Unpacked, in Input) {
	m.u, m.in = u, in
	go func() {
		u.ahead <- struct{}{}
		m.TryOpen()
		<-u.ahead
	}()
}

// The headers that describe the body of a message.
const (
	contentType     = "Content-Type"
	contentEncoding = "Content-Encoding"
)

// errUnreadable means that the message's headers, which are necessary for unpacking, can't be parsed.
var errUnreadable = errors.New("the message's headers can't be read, and they say how to read its body: send lines of the form \"Name: value\"")

// valuesOf returns the sorted values of a header. The name is case-insensitive, because NATS keeps the case, and bridges from
// other systems write lower case.
func valuesOf(h nats.Header, name string) (values []string) {
	for key, lines := range h {
		if strings.EqualFold(key, name) {
			values = append(values, lines...)
		}
	}
	slices.Sort(values) // the order of the keys is random
	return values
}

// mediaType returns the Content-Type of the message with headers h. It returns "" if the framing doesn't depend on the
// Content-Type.
func (u *Unpacker) mediaType(h nats.Header) (string, error) {
	if u.Split.Framing != frame.Auto {
		return "", nil
	}
	values := slices.Compact(valuesOf(h, contentType))
	switch {
	case jsapi.IsUnreadable(h):
		return "", &frame.Error{Reason: frame.Invalid, Text: errUnreadable.Error()}
	case len(values) > 1:
		return "", &frame.Error{Reason: frame.Invalid, Text: fmt.Sprintf("the message has several values of Content-Type (%s): send one", strings.Join(values, ", "))}
	}
	return strings.Join(values, ""), nil
}

// encoding returns the compression of the message with headers h.
func (u *Unpacker) encoding(h nats.Header) (compression.Encoding, error) {
	switch {
	case u.Decompress != compression.Auto:
		return u.Decompress, nil
	case jsapi.IsUnreadable(h):
		return compression.None, errUnreadable
	}
	values := valuesOf(h, contentEncoding)
	if len(values) == 0 {
		return compression.None, nil
	}
	return compression.FromHeader(strings.Join(values, ", "))
}

// errShort means that there is too little memory to unpack a message ahead of the batches.
var errShort = errors.New("too little memory")

// Unpacked is a message and its records. All methods except Open, TryOpen and Drop require that the message is unpacked.
type Unpacked struct {
	*buffers // set from unpacking until Recycle

	Cursor frame.Cursor // position of the first record that isn't in a batch yet

	Memory memory.Frame // memory that the message takes, in addition to the received body

	Compressed, Decompressed int // body sizes in bytes; 0 for an uncompressed body
	Decompressing, Splitting time.Duration

	u  *Unpacker
	in Input

	letters int64 // bytes of Memory that Letter has taken

	mu     sync.Mutex // guards all other fields until the message is unpacked
	opened bool
	fault  error
}

// Records returns the number of records. It returns 0 if Fault isn't nil.
func (m *Unpacked) Records() int { return m.split.Records() }

// Framed reports whether the message is a frame. Otherwise its body is one record.
func (m *Unpacked) Framed() bool { return m.split.Framed() }

// Record returns the i-th record.
func (m *Unpacked) Record(i int) []byte { return m.split.Record(i) }

// Split returns the frame with the records. See its methods Source, Kept and Fault.
func (m *Unpacked) Split() *frame.Frame { return &m.split }

// Letter returns the body and the content type of the dead letter of record i; see frame.Frame.Letter. It takes memory for the buffers
// that the frame decompresses, even beyond the limit.
func (m *Unpacked) Letter(i int) (body []byte, contentType string) {
	body, contentType = m.split.Letter(i)
	if more := m.split.LetterBytes() - m.letters; more > 0 && m.u.Format != operator.Annotated { // annotated rows need the same buffers
		m.u.TakeFrame(&m.Memory, more, true)
		m.letters += more
	}
	return body, contentType
}

// Fault returns the error that prevented unpacking, or nil. An error about the framing is a *frame.Error.
func (m *Unpacked) Fault() error { return m.fault }

// Mark sets the status of the i-th record to s. If s isn't OK, the result omits the record's values.
func (m *Unpacked) Mark(i int, s record.Status) { m.Table.SetStatus(i, s) }

// Exclude sets the status of the i-th record to s and keeps the record out of all batches. It must be called before any record of
// the message is in a batch.
func (m *Unpacked) Exclude(i int, s record.Status) {
	m.split.Exclude(i, s)
	m.Mark(i, s)
}

// Open unpacks the message unless it is already unpacked. It takes memory even beyond the limit.
func (m *Unpacked) Open() { m.open(true) }

// TryOpen unpacks the message if enough memory is free. It reports whether the message is unpacked.
func (m *Unpacked) TryOpen() bool { return m.open(false) }

// open implements Open if must is set, and TryOpen otherwise.
func (m *Unpacked) open(must bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened {
		return true
	}
	m.buffers = m.u.takeBuffers()
	if m.opened = m.unpack(must); !m.opened {
		m.u.DropFrame(&m.Memory)
		m.Recycle()
	}
	return m.opened
}

// IsArrow reports whether the message is an Arrow stream.
func (m *Unpacked) IsArrow() bool { return m.split.IsArrow() }

// Drop releases the memory of a message that is no longer processed.
func (m *Unpacked) Drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened = true
	m.u.DropFrame(&m.Memory)
}

// Decided reports whether the state of a stateful operator has decided on some of the records.
func (m *Unpacked) Decided() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.buffers != nil && len(m.Asked) > 0
}

// Recycle makes the buffers available to other messages. Afterwards, no goroutine may use the records or their results.
func (m *Unpacked) Recycle() {
	if m.fault == nil {
		m.u.putBuffers(m.buffers)
	}
	m.buffers = nil
}

// unpack decompresses and splits the message. Unless must is set, it reports false if too little memory is free.
func (m *Unpacked) unpack(must bool) bool {
	body, err := m.decompressed(must)
	if errors.Is(err, errShort) {
		return false
	}
	if err == nil {
		err = m.splitBody(body)
	}
	if err != nil {
		m.u.DropFrame(&m.Memory)
		m.Recycle()
		m.buffers, m.fault = &buffers{}, err
		return true
	}
	results := m.split.Copied() + m.u.FrameResults(m.Records(), m.bytes(), m.split.KeptBytes(), m.u.Split.SourceBytes(&m.split, len(body)))
	if !m.u.TakeFrame(&m.Memory, max(results, m.size()-m.Memory.Bytes), must) { // reused buffers may be larger than necessary
		return false
	}
	m.Cursor = m.split.Cursor()
	m.describe()
	return true
}

// guessedRatio is the assumed compression ratio of a message that doesn't declare its decompressed size.
const guessedRatio = 4

// decompressed returns the body, decompressed if necessary, and takes the memory of the result. Unless must is set,
// it first takes memory for the declared size, or else for a guessed size. It fails with errShort if too little
// memory is free. If the guess is too small, it retries with a larger size.
func (m *Unpacked) decompressed(must bool) (body []byte, err error) {
	packed, maximum := m.in.Data(), m.u.Split.MaxBytes
	encoding, err := m.u.encoding(m.in.Headers())
	if err != nil || encoding == compression.None {
		return packed, err
	}
	start := time.Now()
	defer func() {
		m.Compressed, m.Decompressed, m.Decompressing = len(packed), len(body), m.Decompressing+time.Since(start)
	}()
	limit, ok := compression.Declared(encoding, packed)
	switch {
	case must:
		limit = maximum
	case !ok:
		limit = guessedRatio * int64(len(packed))
	}
	d, _ := m.u.decompressors.Get().(*compression.Decompressor)
	if d == nil {
		d = &compression.Decompressor{}
	}
	defer m.u.decompressors.Put(d)
	for limit = min(maximum, limit); ; limit = min(maximum, guessedRatio*max(limit, 1<<10)) {
		m.u.DropFrame(&m.Memory)
		if !must && !m.u.TakeFrame(&m.Memory, limit, false) {
			return nil, errShort
		}
		body, err = d.Append(m.body[:0], encoding, packed, limit)
		m.body = body[:0]
		if limit == maximum || !errors.Is(err, compression.ErrTooLarge) {
			m.u.DropFrame(&m.Memory)
			m.u.TakeFrame(&m.Memory, int64(cap(body)), true) // the memory is in use already
			return body, err
		}
	}
}

// bytes returns the total length of all records, or 0 if the size of their results doesn't depend on it.
func (m *Unpacked) bytes() (sum int64) {
	if operator.StringBytes(m.u.Operators, 0, 1) == 0 {
		return 0
	}
	for i := range m.Records() {
		sum += int64(m.split.Length(i))
	}
	return sum
}

func (m *Unpacked) splitBody(body []byte) error {
	start := time.Now()
	mediaType, err := m.u.mediaType(m.in.Headers())
	if err == nil {
		err = m.u.Split.Open(&m.split, mediaType, body)
	}
	m.Splitting += time.Since(start)
	if err == nil && !m.Framed() && m.split.Status(0) == record.TooLarge {
		maximum := m.u.Split.MaxRecord
		err = &frame.Error{Reason: frame.TooLarge, Offset: int64(maximum), Text: ExceedsBatch(m.split.Length(0), maximum)}
	}
	return err
}

// ExceedsBatch returns the error text for a payload or record whose size, bytes, exceeds the batch size, also in bytes.
func ExceedsBatch(bytes, batch int) string {
	return fmt.Sprintf("%d bytes, and a batch takes %d: raise MILLRACE_BATCH_BYTES", bytes, batch)
}

// describe prepares the table for the results of the records.
func (m *Unpacked) describe() {
	m.Table.Reset(m.u.Operators, m.Records())
	m.Table.Keep(m.u.Split.Keep, &m.split)
	m.Table.Annotate(m.u.Split.Annotate)
	for i := range m.Records() {
		m.Table.SetLength(i, m.split.Length(i))
	}
	for i, s := range m.split.Statuses() {
		m.Table.SetStatus(i, s)
	}
}

// buffers has the memory for the records of a message and for their results.
type buffers struct {
	Table   table.Table // results of the records
	Asked   []uint32    // records that table.Table.Ask has found; empty before that
	Chosen  []uint32    // records in the result, if there is a filter; see LeftOut
	LeftOut []int       // number of records that each condition of the filter left out, and then of null records
	Encoded []byte      // encoded results

	body  []byte // decompressed body; unused for an uncompressed message
	split frame.Frame
	kept  int64 // bytes that the budget counts while the buffers are unused
}

// size returns the memory that the buffers take, and the message with them, in bytes.
func (b *buffers) size() int64 {
	return memory.FrameBytes + int64(unsafe.Sizeof(*b)) + int64(cap(b.Encoded)+cap(b.body)+4*cap(b.Asked)+4*cap(b.Chosen)+8*cap(b.LeftOut)) + b.Table.Size() + b.split.Size()
}

// takeBuffers returns new buffers, or buffers of an earlier message.
func (u *Unpacker) takeBuffers() *buffers {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := len(u.idle) - 1
	if last < 0 {
		return &buffers{}
	}
	b := u.idle[last]
	u.idle[last] = nil
	u.idle = u.idle[:last]
	u.Keep(&b.kept, 0)
	b.Asked = b.Asked[:0]
	return b
}

// putBuffers keeps unused buffers for other messages, as far as the budget allows.
func (u *Unpacker) putBuffers(b *buffers) {
	b.split.Reset() // releases the message's body
	invariants.Poison(b.body)
	invariants.Poison(b.Encoded)
	b.Table.Poison()
	if u.Keep(&b.kept, b.size()) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.idle = append(u.idle, b)
	}
}
