package exchange

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/textframes"
)

const (
	// frameMargin is room for the headers of a message, and for what an Arrow stream adds to its records.
	frameMargin = 8 << 10

	// recordMargin is the most that a framing adds to a record.
	recordMargin = 10
)

// Framer packs payloads into frames, and compresses messages.
type Framer struct {
	Framing  frame.Framing        // None: each payload stays a message
	Records  int                  // the most records of a frame, from 1 on
	Encoding compression.Encoding // of messages
	Most     int                  // the most bytes of a message before compression; a frame that reaches it has fewer records
}

// Describe adds the headers by which a worker recognizes framing and compression with MILLRACE_FRAMING=auto and MILLRACE_DECOMPRESS=auto. It keeps
// headers that are there.
func (f *Framer) Describe(h nats.Header) {
	if f.Framing != frame.None && !has(h, client.HeaderContentType) {
		h.Set(client.HeaderContentType, frame.ContentTypeOf(f.Framing))
	}
	if f.Encoding != compression.None && !has(h, client.HeaderContentEncoding) {
		h.Set(client.HeaderContentEncoding, f.Encoding.String())
	}
}

// has reports whether there is a header with that name, in any case.
func has(h nats.Header, name string) bool {
	for each := range h {
		if strings.EqualFold(each, name) {
			return true
		}
	}
	return false
}

// Start packs payloads in another goroutine until there are no more, or until ctx ends. It passes payloads with an Err through, in order.
func (f *Framer) Start(ctx context.Context, payloads <-chan Payload) <-chan Payload {
	out := make(chan Payload)
	go func() {
		defer close(out)
		p := &packing{Framer: f}
		for {
			var ready []Payload
			var next Payload
			var more bool
			select {
			case next, more = <-payloads:
			case <-ctx.Done():
				return
			}
			if more {
				ready = p.add(next)
			} else {
				ready = p.end()
			}
			for _, message := range ready {
				select {
				case out <- message:
				case <-ctx.Done():
					return
				}
			}
			if !more {
				return
			}
		}
	}()
	return out
}

// packing is the frame that a Framer packs now.
type packing struct {
	*Framer
	compressor compression.Compressor
	records    [][]byte
	bytes      int
	place      string // of the first record
}

// add adds a payload, and returns the messages that are ready.
func (p *packing) add(payload Payload) (ready []Payload) {
	switch {
	case payload.Err != nil:
		return append(p.end(), payload)
	case p.Framing == frame.None:
		payload.Data = p.compress(payload.Data)
		return []Payload{payload}
	}
	size := len(payload.Data) + recordMargin
	if len(p.records) == p.Records || p.bytes+size > p.Most-frameMargin {
		ready = p.end()
	}
	if len(p.records) == 0 {
		p.place = payload.Place
	}
	p.records, p.bytes = append(p.records, payload.Data), p.bytes+size
	return ready
}

// end returns the frame, or nothing if it has no records, and begins another one.
func (p *packing) end() []Payload {
	if len(p.records) == 0 {
		return nil
	}
	message := Payload{Place: p.place, Records: len(p.records)}
	message.Data, message.Err = textframes.Append(nil, p.Framing, p.records)
	if message.Err == nil {
		message.Data = p.compress(message.Data)
	}
	p.records, p.bytes = nil, 0
	return []Payload{message}
}

func (p *packing) compress(data []byte) []byte {
	if p.Encoding == compression.None {
		return data
	}
	return p.compressor.Append(nil, p.Encoding, data)
}
