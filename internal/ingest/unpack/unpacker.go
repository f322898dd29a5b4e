// Package unpack decompresses messages and splits them into records.
//
// While memory is free, an Unpacker unpacks several messages at once, ahead of the goroutines that fill batches. Any other message
// is unpacked when a batch needs it. The memory of a Message includes the decompressed body, the index of the records, and the
// table of their results. It doesn't include the received body.
//
// Start reading at Unpacker.Start, then Message.
package unpack

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// Options defines how messages are unpacked.
type Options struct {
	Split      frame.Splitter       // framing of messages, and the limits of a frame
	Decompress compression.Encoding // compression of messages
	Results    Results              // the results of the records
}

// Memory bounds the memory of messages. Its methods don't wait. Several goroutines may call them.
type Memory interface {
	Try(bytes int64) bool // takes memory, or reports false if too little is free
	Force(bytes int64)    // takes memory, even beyond the bound
	Give(bytes int64)     // gives memory back
}

// Input is a received message.
type Input interface {
	Data() []byte
	Headers() nats.Header
}

// Unpacker unpacks messages.
type Unpacker struct {
	Options
	memory        Memory
	ahead         chan struct{} // limits the goroutines that unpack ahead
	decompressors sync.Pool     // contains *compression.Decompressor
	idle          idleBuffers
}

// New returns an Unpacker whose messages take their memory from memory. The Unpacker calls retain before the size of an idle
// buffer changes from before to now bytes. If retain returns false, the Unpacker doesn't keep the buffer.
func New(o Options, memory Memory, retain func(before, now int64) bool) *Unpacker {
	o.Split.MaxBytes = cmp.Or(o.Split.MaxBytes, frame.DefaultMaxBytes)
	return &Unpacker{Options: o, memory: memory, ahead: make(chan struct{}, runtime.GOMAXPROCS(0)), idle: idleBuffers{retain: retain}}
}

// Splits reports whether messages may be frames or compressed. If not, each message is one record.
func (o *Options) Splits() bool {
	return o.Split.Framing != frame.None || o.Decompress != compression.None
}

// IsPlain reports whether in is a single uncompressed record that fits into a batch.
func (o *Options) IsPlain(in Input) bool {
	if !o.Splits() {
		return true
	}
	h := in.Headers()
	return o.isSingle(h) && o.isAsIs(h) && len(in.Data()) <= o.Split.MaxRecord
}

// Start starts a goroutine that unpacks in into m, if enough memory is free. m must be the zero value.
func (u *Unpacker) Start(m *Message, in Input) {
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

// isSingle reports whether the message with headers h is one record according to its framing.
func (o *Options) isSingle(h nats.Header) bool {
	switch o.Split.Framing {
	case frame.None:
		return true
	case frame.Auto:
		values := valuesOf(h, contentType)
		return !jsapi.IsUnreadable(h) && (len(values) == 0 || len(values) == 1 && frame.FramingOf(values[0]) == frame.None)
	}
	return false
}

func (o *Options) isAsIs(h nats.Header) bool {
	return o.Decompress == compression.None ||
		o.Decompress == compression.Auto && !jsapi.IsUnreadable(h) && len(valuesOf(h, contentEncoding)) == 0
}

// mediaType returns the Content-Type of the message with headers h. It returns "" if the framing doesn't depend on the
// Content-Type.
func (o *Options) mediaType(h nats.Header) (string, error) {
	if o.Split.Framing != frame.Auto {
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
func (o *Options) encoding(h nats.Header) (compression.Encoding, error) {
	switch {
	case o.Decompress != compression.Auto:
		return o.Decompress, nil
	case jsapi.IsUnreadable(h):
		return compression.None, errUnreadable
	}
	return compression.FromHeader(strings.Join(valuesOf(h, contentEncoding), ", "))
}

// Results describes the results of records.
type Results struct {
	Operators  []operator.Operator
	Format     operator.Format
	Compressed bool // whether results are compressed, which doubles the memory for them
}

// cost returns the maximum memory for the index and the results of a message's records, in bytes. bytes is the records' total
// size.
func (r *Results) cost(records int, bytes int64) int64 {
	strings := operator.StringBytes(r.Operators, records, int(bytes))
	body := int64(table.MaxBytes(r.Format, r.Operators, records, strings))
	if r.Compressed {
		body *= 2
	}
	return int64(records)*frame.IndexBytes + table.MaxSize(r.Format, r.Operators, records, strings) + body + body/8
}

// MaxBytes returns the maximum memory for the decompressed body, the index and the results of one message, in bytes. received is the
// message's maximum size in bytes. Most returns 0 if every message is a single uncompressed record.
func (o *Options) MaxBytes(received int64) int64 {
	if !o.Splits() {
		return 0
	}
	limit, records := o.Split.Limits()
	body, content := int64(0), min(limit, received)
	if o.Decompress != compression.None {
		body, content = limit, limit
	}
	if o.Split.Framing == frame.Arrow || o.Split.Framing == frame.Auto {
		body, content = body+limit, limit // the buffers of the stream may be compressed
	}
	if o.Split.Framing == frame.None {
		records = 1
	}
	return body + o.Results.cost(int(min(int64(records), content+1)), content)
}
