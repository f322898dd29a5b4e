package faults

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/pierrec/lz4/v4"

	"millrace/internal/ingest/results"
)

// damage is the expected reason why a message has no records. Its dead letter must name the reason, and a byte position
// between first and last.
type damage struct {
	reason      results.Reason
	first, last int
}

// isNamed reports whether the headers of a dead letter name the damage.
func (d *damage) isNamed(h nats.Header) bool {
	_, rest, _ := strings.Cut(h.Get(results.HeaderError), " at byte ")
	text, _, _ := strings.Cut(rest, ":")
	at, err := strconv.Atoi(text)
	return err == nil && d.first <= at && at <= d.last && h.Get(results.HeaderReason) == string(d.reason)
}

// feedDamaged feeds n frames to two workers and adds the outcomes to the record. Two thirds of the frames are damaged.
// Each frame that can't be split must become one dead letter. A few damaged frames can still be split.
func (r *rig) feedDamaged(fault string, n int, frames func(i int) *nats.Msg) {
	r.t.Helper()
	r.lead = frameLead
	r.serve(1)
	r.work(2)
	r.feed(n, frames).wait()
	bad := 0
	for i := range n {
		m := frames(i)
		if _, d := r.split(m.Header, m.Data); d != nil {
			bad++
		}
	}
	if a := r.close(fault, 2*n/3); a.dead != bad || bad < n/2 || bad > 2*n/3 {
		r.t.Errorf("%d dead letters, want those of the %d of %d frames that can't be split", a.dead, bad, n)
	}
}

// damageRNG returns the random source for the damage of the i-th frame.
func (r *rig) damageRNG(i int) *rand.Rand { return rand.New(rand.NewPCG(r.seed, uint64(i))) }

// TestFramesCorrupted truncates some frames and changes a length in others. Each of these frames becomes a dead letter,
// unless it is still a valid frame by chance.
func TestFramesCorrupted(t *testing.T) {
	eachMode(t, func(r *rig) {
		n := times(5000, 500)
		r.set("MILLRACE_FRAMING=length_delimited")
		r.split = func(_ nats.Header, body []byte) ([][]byte, *damage) { return splitLengths(body) }
		frames := r.framesOf(upTo(100), appendLength)
		r.feedDamaged("frames: truncated, or with a wrong length", n, func(i int) *nats.Msg {
			m, rng := frames(i), r.damageRNG(i)
			switch size := len(m.Data); {
			case size == 0:
			case i%3 == 0:
				m.Data = m.Data[:rng.IntN(size)]
			case i%3 == 1:
				m.Data[rng.IntN(4)] ^= byte(1 + rng.IntN(255))
			}
			return m
		})
	})
}

// appendLength appends a record, preceded by its length.
func appendLength(frame, record []byte) []byte {
	return append(binary.BigEndian.AppendUint32(frame, uint32(len(record))), record...)
}

// splitLengths splits a frame in which each record is preceded by its length.
func splitLengths(body []byte) (records [][]byte, bad *damage) {
	for pos := 0; pos < len(body); {
		left := body[pos:]
		if len(left) < 4 || uint64(len(left)-4) < uint64(binary.BigEndian.Uint32(left)) {
			return nil, &damage{results.InvalidFrame, pos, pos}
		}
		n := int(binary.BigEndian.Uint32(left))
		records, pos = append(records, left[4:4+n]), pos+4+n
	}
	return records, nil
}

// encoding is a compression of frames. Its own library writes and reads the frames.
type encoding struct {
	name  string // as in Content-Encoding
	write func(w io.Writer) (io.WriteCloser, error)
	read  func(r io.Reader) (io.Reader, error)
}

var encodings = []encoding{
	{
		"zstd", func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)) },
		func(r io.Reader) (io.Reader, error) {
			d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20)) // RFC 9659
			if err != nil {
				return nil, err
			}
			return d.IOReadCloser(), nil
		},
	},
	{
		"gzip", func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	},
	{
		"lz4", func(w io.Writer) (io.WriteCloser, error) { return lz4.NewWriter(w), nil },
		func(r io.Reader) (io.Reader, error) { return lz4.NewReader(r), nil },
	},
	{
		"snappy", func(w io.Writer) (io.WriteCloser, error) {
			return s2.NewWriter(w, s2.WriterSnappyCompat(), s2.WriterConcurrency(1)), nil
		},
		func(r io.Reader) (io.Reader, error) { return s2.NewReader(r), nil },
	},
}

func (e encoding) compress(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := e.write(&out)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func (e encoding) decompress(body []byte) ([]byte, error) {
	if len(body) == 0 && e.name != "snappy" { // only an empty Snappy body is valid, because Snappy has no header and no end mark
		return nil, io.ErrUnexpectedEOF
	}
	r, err := e.read(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c, ok := r.(io.Closer); ok {
		defer func() { _ = c.Close() }() // the whole body is read
	}
	return io.ReadAll(r)
}

// TestFramesCompressedAndDamaged compresses frames in every encoding. It truncates some frames and changes a byte in
// others. A frame that the encoding's library can't read becomes a dead letter.
func TestFramesCompressedAndDamaged(t *testing.T) {
	eachMode(t, func(r *rig) {
		n := times(6000, 600)
		l := r.lines(upTo(100))
		r.set("MILLRACE_DECOMPRESS=auto")
		of := func(i int) encoding { return encodings[i/3%len(encodings)] }
		r.split = func(h nats.Header, body []byte) ([][]byte, *damage) {
			i, err := strconv.Atoi(h.Get("Input"))
			if err != nil {
				panic(fmt.Sprintf("a frame without its number: %v", h))
			}
			lines, err := of(i).decompress(body)
			if err != nil {
				return nil, &damage{results.InvalidEncoding, 0, len(body)}
			}
			return splitLines(lines), nil
		}
		r.feedDamaged("frames: compressed, then truncated or a byte changed", n, func(i int) *nats.Msg {
			m, rng := l.input(i), r.damageRNG(i)
			for at, c := range m.Data {
				if c != '\n' {
					m.Data[at] = "record"[c%6] // random bytes would be stored uncompressed
				}
			}
			body, err := of(i).compress(m.Data)
			if err != nil {
				panic(err)
			}
			switch size := len(body); {
			case size == 0:
			case i%3 == 0:
				body = body[:rng.IntN(size)]
			case i%3 == 1:
				body[rng.IntN(size)] ^= byte(1 + rng.IntN(255))
			}
			m.Data = body
			m.Header.Set("Content-Encoding", of(i).name)
			return m
		})
	})
}
