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
	Place   string // where it comes from: "file", or "file:12" for a line, or for the first record of a frame
	Data    []byte
	Records int   // how many records a frame has; 0 for a message that is no frame
	Err     error // why there is no Data, or nil; other payloads may follow
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

// linesAdvice says what to do about a source that checkText refuses.
const linesAdvice = "--lines needs an encoding in which every line feed ends a line, such as UTF-8 (iconv -f UTF-16 -t UTF-8 converts); " +
	"leave out --lines to send each file whole"

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

// checkText returns an error if a line feed in this source need not end a line. It looks at the first bytes that are available, and consumes
// nothing. Text in UTF-16 or UTF-32 begins with a byte order mark or has zero bytes, and so has nearly everything that is no text.
func checkText(in *bufio.Reader) error {
	_, _ = in.Peek(1) // waits for the first read; if it fails, so does the next one
	begin, _ := in.Peek(in.Buffered())
	if bytes.HasPrefix(begin, []byte("\xff\xfe")) || bytes.HasPrefix(begin, []byte("\xfe\xff")) {
		return fmt.Errorf("it is text in UTF-16 or UTF-32, by its byte order mark: %s", linesAdvice)
	}
	if zero := bytes.IndexByte(begin, 0); zero >= 0 {
		return fmt.Errorf("it has a zero byte at offset %d, so it is no text, or text in UTF-16 or UTF-32: %s", zero, linesAdvice)
	}
	return nil
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
