package demo

import (
	"fmt"

	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/table"
	"millrace/internal/textframes"
)

// These are the bounds and defaults of Frames.
const (
	DefaultRecordBytes = 256
	MaxRecordBytes     = 64 << 10
	FrameBytes         = 512 << 10 // mean total size of a frame's records, if Frames.Records is 0
	MaxFrameBytes      = 2 << 20   // maximum product of Records and RecordBytes
)

// Frames describes messages of several records. If Framing is frame.None, every message is one document instead.
type Frames struct {
	Framing     frame.Framing
	RecordBytes int                  // mean size of a record
	Records     int                  // number of records in a message; 0 means about FrameBytes in total
	Encoding    compression.Encoding // compression of messages; also applies to documents
}

// withDefaults returns f with the default number of records in place of 0.
func (f Frames) withDefaults() Frames {
	if f.Records == 0 {
		f.Records = min(max(FrameBytes/f.RecordBytes, 1), frame.DefaultMaxRecords)
	}
	return f
}

// Check returns an error if RecordBytes or Records is out of range.
func (f Frames) Check() error {
	if f.RecordBytes < 1 || f.RecordBytes > MaxRecordBytes {
		return fmt.Errorf("--record-bytes is %d, want 1 to %d", f.RecordBytes, MaxRecordBytes)
	}
	if limit := min(MaxFrameBytes/f.RecordBytes, frame.DefaultMaxRecords); f.Records < 0 || f.Records > limit {
		return fmt.Errorf("--frame-records is %d, want 1 to %d with --record-bytes %d, or 0 for the default", f.Records, limit, f.RecordBytes)
	}
	return nil
}

// source generates the bodies of messages and checks their results. It can regenerate each message at any time.
type source interface {
	// Append appends the uncompressed message i to dst.
	Append(dst []byte, i int) []byte

	// records returns the number of records in each message.
	records() int

	// check compares all parts of the result of message i with the reference. It uses buffer as memory and returns the
	// buffer for reuse.
	check(buffer []byte, i int, ops []operator.Operator, format operator.Format, parts []part) ([]byte, error)
}

// part is one of several messages with the results of an input.
type part struct {
	from int // index of the part's first record
	body []byte
}

func newSource(seed uint64, f Frames) source {
	if f.Framing == frame.None {
		return NewDocuments(seed)
	}
	return &framed{Frames: f.withDefaults(), seed: seed, text: corpus.NewVocabulary(seed)}
}

// framed generates messages of several records of random text. Most records differ in size.
type framed struct {
	Frames
	seed uint64
	text *corpus.Vocabulary
}

func (f *framed) records() int { return f.Records }

// texts appends the text of all records of message i to buffer. It returns the extended buffer and the records in it.
func (f *framed) texts(buffer []byte, i int) ([]byte, [][]byte) {
	set := corpus.Seed(f.seed, i)
	ends := make([]int, f.Records)
	for r := range ends {
		seed := corpus.Seed(set, r)
		size := corpus.Random{State: seed}
		buffer = f.text.AppendUTF8(buffer, seed, size.Below(2*f.RecordBytes+1))
		ends[r] = len(buffer)
	}
	records, start := make([][]byte, f.Records), 0
	for r, end := range ends {
		records[r], start = buffer[start:end], end
	}
	return buffer, records
}

func (f *framed) Append(dst []byte, i int) []byte {
	_, records := f.texts(nil, i)
	dst, err := textframes.Append(dst, f.Framing, records)
	if err != nil {
		panic("demo: " + err.Error()) // Check has accepted the framing, and every frame can carry these records
	}
	return dst
}

func (f *framed) check(buffer []byte, i int, ops []operator.Operator, format operator.Format, parts []part) ([]byte, error) {
	buffer, records := f.texts(buffer[:0], i)
	want := table.Reference(ops, records, nil)
	for n, p := range parts {
		to := len(records)
		if n+1 < len(parts) {
			to = parts[n+1].from
		}
		if p.from < 0 || p.from > to || to > len(records) || n == 0 && p.from != 0 {
			return buffer, fmt.Errorf("part %d has the records from %d to %d of %d", n+1, p.from, to, len(records))
		}
		if err := want.Check(p.body, format, p.from, to); err != nil {
			return buffer, err
		}
	}
	return buffer, nil
}
