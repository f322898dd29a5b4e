package cliclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/textframes"
)

// Source is a file, or standard input.
type Source struct {
	Name string // name for messages to the user
	Open func() (io.ReadCloser, error)
}

// Payload is the body of one message to send.
type Payload struct {
	Place   string // "file", or "file:12" for a line or the first record of a frame
	Data    []byte
	Records int   // number of records in a frame; 0 for a message that isn't a frame
	Err     error // reason why Data is missing, or nil; other payloads may follow
}

// Payloads reads payloads from sources.
type Payloads struct {
	Sources []Source
	Lines   bool // each line is a payload; otherwise each source is one payload
	Max     int  // maximum size of a payload in bytes; a larger one has an Err and isn't kept in memory

	read atomic.Int64
}

// Read returns the number of bytes read so far.
func (p *Payloads) Read() int64 { return p.read.Load() }

// errTooLarge is the Err of a payload of more than Max bytes.
var errTooLarge = errors.New("larger than the server's max_payload")

// linesAdvice is the advice in the errors of checkText.
const linesAdvice = "--lines needs an encoding in which every line feed ends a line, such as UTF-8 (iconv -f UTF-16 -t UTF-8 converts); " +
	"leave out --lines to send each file whole"

// All iterates over the payloads of all sources.
func (p *Payloads) All() iter.Seq[Payload] {
	return func(yield func(Payload) bool) {
		for _, s := range p.Sources {
			for payload := range p.payloadsOf(s) {
				if !yield(payload) {
					return
				}
			}
		}
	}
}

// Start reads payloads in another goroutine until there are no more or ctx ends, and then closes the channel. A read
// from a terminal or a pipe may block indefinitely, so the goroutine may outlive ctx and run until the process ends.
func Start(ctx context.Context, payloads iter.Seq[Payload]) <-chan Payload {
	out := make(chan Payload)
	go func() {
		defer close(out)
		for p := range payloads {
			select {
			case out <- p:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// payloadsOf iterates over the payloads of a source.
func (p *Payloads) payloadsOf(s Source) iter.Seq[Payload] {
	return func(yield func(Payload) bool) {
		f, err := s.Open()
		if err != nil {
			yield(Payload{Place: s.Name, Err: err})
			return
		}
		defer func() { _ = f.Close() }() // a file that is only read needs no error check
		in := bufio.NewReaderSize(&counter{f, &p.read}, 64<<10)
		if !p.Lines {
			data, err := io.ReadAll(io.LimitReader(in, int64(p.Max)+1))
			if err == nil && len(data) > p.Max {
				data, err = nil, fmt.Errorf("%w of %d bytes (does each line hold a payload? Then use --lines)", errTooLarge, p.Max)
			}
			yield(Payload{Place: s.Name, Data: data, Err: err})
			return
		}
		if err := checkText(in); err != nil {
			yield(Payload{Place: s.Name, Err: err})
			return
		}
		for number := 1; ; number++ {
			line, err := p.line(in)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(Payload{Place: fmt.Sprintf("%s:%d", s.Name, number), Data: line, Err: err}) || err != nil && !errors.Is(err, errTooLarge) {
				return
			}
		}
	}
}

// checkText returns an error if the source doesn't look like text in which each line feed ends a line. It checks the
// first available bytes and consumes nothing. Text in UTF-16 or UTF-32 has a byte order mark or zero bytes. Most data
// that isn't text has zero bytes, too.
func checkText(in *bufio.Reader) error {
	_, _ = in.Peek(1) // fills the buffer; the next read returns an error again
	begin, _ := in.Peek(in.Buffered())
	if bytes.HasPrefix(begin, []byte("\xff\xfe")) || bytes.HasPrefix(begin, []byte("\xfe\xff")) {
		return fmt.Errorf("it is text in UTF-16 or UTF-32, by its byte order mark: %s", linesAdvice)
	}
	if zero := bytes.IndexByte(begin, 0); zero >= 0 {
		return fmt.Errorf("it has a zero byte at offset %d, so it is no text, or text in UTF-16 or UTF-32: %s", zero, linesAdvice)
	}
	return nil
}

// line returns the next line without its LF or CRLF, which the last line may lack. It returns io.EOF after the last
// line. It skips a line of more than Max bytes and returns errTooLarge.
func (p *Payloads) line(in *bufio.Reader) (line []byte, err error) {
	line, size := []byte{}, 0
	for {
		part, err := in.ReadSlice('\n')
		size += len(part)
		if size <= p.Max+len("\r\n") {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && size > 0:
		case err != nil:
			return nil, err
		}
		if size <= p.Max+len("\r\n") {
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			size = len(line)
		}
		if size > p.Max {
			return nil, fmt.Errorf("%w of %d bytes", errTooLarge, p.Max)
		}
		return line, nil
	}
}

// counter counts the bytes that are read.
type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

const (
	// frameMargin is the space in bytes for the headers of a message and the overhead of an Arrow stream.
	frameMargin = 8 << 10

	// recordMargin is the maximum overhead of a framing per record, in bytes.
	recordMargin = 10
)

// Framer packs payloads into frames and compresses messages.
type Framer struct {
	Framing  frame.Framing        // None makes each payload a message
	Records  int                  // maximum number of records per frame, at least 1
	Encoding compression.Encoding // compression of messages
	Max      int                  // maximum size of a message before compression, in bytes; it can limit a frame to fewer records
}

// Describe adds the headers for framing and compression unless they are already set. A worker needs them with
// MILLRACE_FRAMING=auto and MILLRACE_DECOMPRESS=auto.
func (f *Framer) Describe(h nats.Header) {
	if f.Framing != frame.None && !has(h, client.HeaderContentType) {
		h.Set(client.HeaderContentType, frame.ContentTypeOf(f.Framing))
	}
	if f.Encoding != compression.None && !has(h, client.HeaderContentEncoding) {
		h.Set(client.HeaderContentEncoding, f.Encoding.String())
	}
}

// has reports whether h has a header with the given name, ignoring case.
func has(h nats.Header, name string) bool {
	for each := range h {
		if strings.EqualFold(each, name) {
			return true
		}
	}
	return false
}

// Pack iterates over the messages that hold payloads. It passes a payload with an Err through, and keeps the order.
func (f *Framer) Pack(payloads iter.Seq[Payload]) iter.Seq[Payload] {
	return func(yield func(Payload) bool) {
		p := &packing{Framer: f, yield: yield}
		for next := range payloads {
			if !p.add(next) {
				return
			}
		}
		p.end()
	}
}

// packing is the state of one iteration over Framer.Pack, with the current frame.
type packing struct {
	*Framer
	yield      func(Payload) bool
	compressor compression.Compressor
	records    [][]byte
	bytes      int
	place      string // place of the first record
}

// add adds a payload. It returns false if the iteration must stop.
func (p *packing) add(payload Payload) bool {
	if payload.Err != nil || p.Framing == frame.None {
		payload.Data = p.compress(payload.Data)
		return p.end() && p.yield(payload)
	}
	size := len(payload.Data) + recordMargin
	if (len(p.records) == p.Records || p.bytes+size > p.Max-frameMargin) && !p.end() {
		return false
	}
	if len(p.records) == 0 {
		p.place = payload.Place
	}
	p.records, p.bytes = append(p.records, payload.Data), p.bytes+size
	return true
}

// end yields the current frame unless it is empty. It returns false if the iteration must stop.
func (p *packing) end() bool {
	if len(p.records) == 0 {
		return true
	}
	message := Payload{Place: p.place, Records: len(p.records)}
	message.Data, message.Err = textframes.Append(nil, p.Framing, p.records)
	message.Data = p.compress(message.Data)
	p.records, p.bytes = nil, 0
	return p.yield(message)
}

func (p *packing) compress(data []byte) []byte {
	if p.Encoding == compression.None || data == nil {
		return data
	}
	return p.compressor.Append(nil, p.Encoding, data)
}
