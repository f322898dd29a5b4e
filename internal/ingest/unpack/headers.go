package unpack

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/jsapi"
)

// The headers that tell how to read a message.
const (
	contentType     = "Content-Type"
	contentEncoding = "Content-Encoding"
)

// errUnreadable means that the headers that say how to read a message can't be parsed.
var errUnreadable = errors.New("the message's headers can't be read, and they say how to read its body: send lines of the form \"Name: value\"")

// valuesOf returns the values of a header. Case doesn't matter in its name: NATS keeps the spelling, and bridges from other systems write
// lower case. A header on several lines has several values.
func valuesOf(h nats.Header, name string) (values []string) {
	for key, lines := range h {
		if strings.EqualFold(key, name) {
			values = append(values, lines...)
		}
	}
	slices.Sort(values) // the order of the keys is random
	return values
}

// isSingle reports whether a message is one record, by its framing.
func (s *Settings) isSingle(h nats.Header) bool {
	switch s.Split.Framing {
	case frame.None:
		return true
	case frame.Auto:
		values := valuesOf(h, contentType)
		return !jsapi.IsUnreadable(h) && (len(values) == 0 || len(values) == 1 && frame.FramingOf(values[0]) == frame.None)
	}
	return false
}

// isAsIs reports whether a message isn't compressed.
func (s *Settings) isAsIs(h nats.Header) bool {
	return s.Decompress == compression.None ||
		s.Decompress == compression.Auto && !jsapi.IsUnreadable(h) && len(valuesOf(h, contentEncoding)) == 0
}

// mediaType returns the Content-Type by which to split a message, if that matters.
func (s *Settings) mediaType(h nats.Header) (string, error) {
	if s.Split.Framing != frame.Auto {
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

// encoding returns how the body of a message is compressed.
func (s *Settings) encoding(h nats.Header) (compression.Encoding, error) {
	switch {
	case s.Decompress != compression.Auto:
		return s.Decompress, nil
	case jsapi.IsUnreadable(h):
		return compression.None, errUnreadable
	}
	return compression.FromHeader(strings.Join(valuesOf(h, contentEncoding), ", "))
}
