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

// texts is a set of generated texts, in messages of the same number of texts. Each text can be generated again at any time.
type texts interface {
	// text appends text n to dst. Message i has the texts from i*records() on.
	text(dst []byte, n int) []byte

	// records returns the number of texts in each message.
	records() int
}

// textsOf appends the texts of message i to buffer. It returns the extended buffer and the texts in it.
func textsOf(t texts, buffer []byte, i int) ([]byte, [][]byte) {
	n, start := t.records(), len(buffer)
	ends := make([]int, n)
	for r := range ends {
		buffer = t.text(buffer, i*n+r)
		ends[r] = len(buffer)
	}
	all := make([][]byte, n)
	for r, end := range ends {
		all[r], start = buffer[start:end], end
	}
	return buffer, all
}

// newTexts returns documents of very different sizes if there is no framing, and otherwise many texts of similar sizes. A share of them are
// near-duplicates of earlier ones.
func newTexts(seed uint64, f Frames, near float64) texts {
	var all texts = NewDocuments(seed)
	if f.Framing != frame.None {
		all = &framed{Frames: f.withDefaults(), seed: seed, vocabulary: corpus.NewVocabulary(seed)}
	}
	if near == 0 {
		return all
	}
	return newNearDuplicates(all, seed, near)
}

// framed generates random text for messages of several records. Most records differ in size.
type framed struct {
	Frames
	seed       uint64
	vocabulary *corpus.Vocabulary
}

func (f *framed) records() int { return f.Records }

func (f *framed) text(dst []byte, n int) []byte {
	seed := corpus.Seed(corpus.Seed(f.seed, n/f.Records), n%f.Records)
	size := corpus.Random{State: seed}
	return f.vocabulary.AppendUTF8(dst, seed, size.Below(2*f.RecordBytes+1))
}
