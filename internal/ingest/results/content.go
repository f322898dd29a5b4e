package results

import (
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// These headers describe a body. Results have their own, and never those of the input. The dead letter of a whole message has those of
// the input, because it has the input's body.
const (
	headerContentType     = "Content-Type"
	headerContentEncoding = "Content-Encoding"
)

// describesBody reports whether a header of an input describes its body.
func describesBody(key string) bool {
	switch len(key) {
	case len(headerContentType):
		return strings.EqualFold(key, headerContentType)
	case len(headerContentEncoding):
		return strings.EqualFold(key, headerContentEncoding)
	}
	return false
}

// content has the headers that describe the bodies of results. All results share the values, so nobody may change them.
type content struct {
	single, framed []string // Content-Type for a message that is one record, and for a frame
	encoding       []string // Content-Encoding; nil if results are not compressed
}

func newContent(f operator.Format, e compression.Encoding) content {
	c := content{single: []string{table.ContentType(f, false)}, framed: []string{table.ContentType(f, true)}}
	if e != compression.None {
		c.encoding = []string{e.ContentEncoding()}
	}
	return c
}

// describe sets the headers of a result with that body. A body without bytes is never compressed.
func (c *content) describe(h nats.Header, framed bool, body int) {
	h[headerContentType] = c.single
	if framed {
		h[headerContentType] = c.framed
	}
	if c.encoding != nil && body > 0 {
		h[headerContentEncoding] = c.encoding
	}
}
