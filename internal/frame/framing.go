package frame

import "math"

// Defaults of the limits of a Splitter.
const (
	DefaultMaxRecords = 65536
	DefaultMaxBytes   = 64 << 20
)

// Splitter holds the settings for splitting. Many goroutines may use it at the same time.
type Splitter struct {
	Framing Framing
	Column  string // the Arrow column that holds the records. Empty: the only binary or string column

	MaxRecords int   // most records in a frame; 0 means DefaultMaxRecords
	MaxBytes   int64 // most bytes of a frame, also after decompression inside an Arrow stream; 0 means DefaultMaxBytes
	MaxRecord  int   // most bytes of a record; 0 means no limit but MaxBytes. A longer record has the status TooLarge
}

// Limits returns the most bytes and the most records of a frame.
func (s *Splitter) Limits() (bytes int64, records int) {
	l := s.limits()
	return int64(l.bytes), l.records
}

// limits are the limits of a Splitter with the defaults filled in. No limit exceeds what a uint32 can count, because the
// index of a Frame consists of uint32.
type limits struct{ records, bytes, record int }

func (s *Splitter) limits() limits {
	l := limits{records: s.MaxRecords, bytes: int(min(s.MaxBytes, math.MaxUint32)), record: s.MaxRecord}
	if l.records <= 0 {
		l.records = DefaultMaxRecords
	}
	l.records = min(l.records, math.MaxInt32)
	if l.bytes <= 0 {
		l.bytes = DefaultMaxBytes
	}
	if l.record <= 0 {
		l.record = math.MaxUint32
	}
	return l
}

// Open validates body and indexes its records in f. It forgets what f held before and reuses its memory. The framing Auto
// uses contentType, and the other framings ignore it. The frame refers to body until the next Open or Reset, and body
// must not change in that time.
//
// Errors are of type *Error. After an error, f has no records. MaxBytes doesn't limit a body without framing: if it exceeds
// MaxRecord, its only record has the status TooLarge.
func (s *Splitter) Open(f *Frame, contentType string, body []byte) error {
	f.Reset()
	f.limits = s.limits()
	if err := s.split(f, contentType, body); err != nil {
		f.Reset()
		return err
	}
	f.padStatuses()
	return nil
}

// split selects the framing. Its result is an error, not an *Error, so that nil stays nil.
func (s *Splitter) split(f *Frame, contentType string, body []byte) error {
	framing := s.Framing
	if framing == Auto {
		framing = FramingOf(contentType)
	}
	f.framed = framing != None
	limit := f.limits.bytes
	if !f.framed {
		limit = math.MaxUint32
	}
	if len(body) > limit {
		return tooLarge(limit, "the frame has %d bytes, more than %d: send smaller frames, or raise MILLRACE_FRAME_BYTES",
			len(body), limit)
	}
	switch framing {
	case NewlineDelimited:
		return f.splitLines(body)
	case LengthDelimited:
		return f.splitLengths(body)
	case VarintLengthDelimited:
		return f.splitVarints(body)
	case Arrow:
		return f.splitArrow(s.Column, body)
	}
	f.add(0, len(body))
	f.endSegment(body, false)
	return nil
}
