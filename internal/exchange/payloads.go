package exchange

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Source is a file, or standard input.
type Source struct {
	Name string // for messages
	Open func() (io.ReadCloser, error)
}

// Payload is what one message carries.
type Payload struct {
	Place string // where it comes from: "file", or "file:12" for a line
	Data  []byte
	Err   error // why there is no Data, or nil; other payloads may follow
}

// Payloads reads payloads from sources.
type Payloads struct {
	Sources []Source
	Lines   bool // each line is a payload; otherwise each source is
	Most    int  // the most bytes of a payload; larger ones have an Err, and aren't kept in memory

	read atomic.Int64
}

// Read returns how many bytes have been read so far.
func (p *Payloads) Read() int64 { return p.read.Load() }

// errTooLarge is the Err of a payload of more than Most bytes.
var errTooLarge = errors.New("larger than the server's max_payload")

// Start reads in another goroutine until the sources or ctx end. Reading from a terminal or a pipe may wait for ever, so the goroutine may
// outlive ctx. It then ends with the process.
func (p *Payloads) Start(ctx context.Context) <-chan Payload {
	out := make(chan Payload)
	go func() {
		defer close(out)
		for _, s := range p.Sources {
			for payload := range p.payloadsOf(s) {
				select {
				case out <- payload:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out
}

// payloadsOf iterates over the payloads of a source.
func (p *Payloads) payloadsOf(s Source) func(yield func(Payload) bool) {
	return func(yield func(Payload) bool) {
		f, err := s.Open()
		if err != nil {
			yield(Payload{Place: s.Name, Err: err})
			return
		}
		defer func() { _ = f.Close() }() // it is only read
		in := bufio.NewReaderSize(&counter{f, &p.read}, 64<<10)
		if !p.Lines {
			data, err := io.ReadAll(io.LimitReader(in, int64(p.Most)+1))
			if err == nil && len(data) > p.Most {
				data, err = nil, fmt.Errorf("%w of %d bytes (does each line hold a payload? Then use --lines)", errTooLarge, p.Most)
			}
			yield(Payload{Place: s.Name, Data: data, Err: err})
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

// line returns the next line without its LF or CRLF. The last line needs none. It returns io.EOF after the last line. It skips a line that is
// too large.
func (p *Payloads) line(in *bufio.Reader) (line []byte, err error) {
	line, size := []byte{}, 0
	for {
		part, err := in.ReadSlice('\n')
		size += len(part)
		if size <= p.Most+len("\r\n") {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && size > 0:
		case err != nil:
			return nil, err
		}
		if size <= p.Most+len("\r\n") {
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			size = len(line)
		}
		if size > p.Most {
			return nil, fmt.Errorf("%w of %d bytes", errTooLarge, p.Most)
		}
		return line, nil
	}
}

// counter counts what is read.
type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}
