package results

import (
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// Headers that describe a body. A result has its own values. The dead letter of a whole message has the input's values, because it
// has the input's body.
const (
	headerContentType     = "Content-Type"
	headerContentEncoding = "Content-Encoding"
)

// describesBody reports whether key is a header that describes a body.
func describesBody(key string) bool {
	switch len(key) {
	case len(headerContentType):
		return strings.EqualFold(key, headerContentType)
	case len(headerContentEncoding):
		return strings.EqualFold(key, headerContentEncoding)
	}
	return false
}

// content has the values of the headers that describe result bodies. All results share the values, which must not be modified.
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

// describe sets the headers in h for a result body of the given size in bytes. An empty body is never compressed.
func (c *content) describe(h nats.Header, framed bool, body int) {
	h[headerContentType] = c.single
	if framed {
		h[headerContentType] = c.framed
	}
	if c.encoding != nil && body > 0 {
		h[headerContentEncoding] = c.encoding
	}
}
