package demo

import (
	"fmt"

	"millrace/internal/compression"
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

// withDefaults returns f with the default number of records in place of 0. Without a framing, a message has one record.
func (f Frames) withDefaults() Frames {
	switch {
	case f.Framing == frame.None:
		f.Records = 1
	case f.Records == 0:
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
