package demo

import (
	"fmt"

	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/frame"
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

// texts generates the texts of messages. It can regenerate each message at any time.
type texts interface {
	// texts appends the texts of message i to buffer. It returns the extended buffer and the texts in it.
	texts(buffer []byte, i int) ([]byte, [][]byte)

	// records returns the number of texts in each message.
	records() int
}

// newTexts returns documents of very different sizes if there is no framing, and otherwise many texts of similar sizes.
func newTexts(seed uint64, f Frames) texts {
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

func (f *framed) texts(buffer []byte, i int) ([]byte, [][]byte) {
	set := corpus.Seed(f.seed, i)
	ends, start := make([]int, f.Records), len(buffer)
	for r := range ends {
		seed := corpus.Seed(set, r)
		size := corpus.Random{State: seed}
		buffer = f.text.AppendUTF8(buffer, seed, size.Below(2*f.RecordBytes+1))
		ends[r] = len(buffer)
	}
	records := make([][]byte, f.Records)
	for r, end := range ends {
		records[r], start = buffer[start:end], end
	}
	return buffer, records
}
