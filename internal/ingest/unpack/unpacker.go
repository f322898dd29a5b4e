// Package unpack decompresses messages and splits them into records.
//
// While memory is free, an Unpacker unpacks several messages at once, ahead of the goroutines that fill batches. Any other message
// is unpacked when a batch needs it. The memory of a Message includes the decompressed body, the index of the records, and the
// table of their results. It doesn't include the received body.
//
// Start reading at Unpacker.Start, then Message.
package unpack

import (
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
	"millrace/internal/memory"
	"millrace/internal/operator"
)

// Input is a received message.
type Input interface {
	Data() []byte
	Headers() nats.Header
}

// Unpacker unpacks messages.
type Unpacker struct {
	*memory.Budget
	ahead         chan struct{} // limits the goroutines that unpack ahead
	decompressors sync.Pool     // contains *compression.Decompressor

	mu   sync.Mutex
	idle []*buffers // a stack, so there are at most as many large buffers as messages in use at once; guarded by mu
}

// New returns an Unpacker. The budget describes the messages, and counts their memory and the idle buffers.
func New(b *memory.Budget) *Unpacker {
	return &Unpacker{Budget: b, ahead: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// IsPlain reports whether in is a single uncompressed record that fits into a batch and has a result in any case.
func (u *Unpacker) IsPlain(in Input) bool {
	if !u.Splits() {
		return true
	}
	if u.Selects() || u.Split.Selects() || operator.HasState(u.Operators) {
		return false
	}
	mediaType, unclear := u.mediaType(in.Headers())
	encoding, unknown := u.encoding(in.Headers())
	single := u.Split.Framing == frame.None || u.Split.Framing == frame.Auto && frame.FramingOf(mediaType) == frame.None
	return unclear == nil && unknown == nil && single && encoding == compression.None && len(in.Data()) <= u.Split.MaxRecord
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
