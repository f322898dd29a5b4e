package frame

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"millrace/internal/jsonfield"
)

// Framing is the format in which a message body holds records.
type Framing uint8

const (
	None                  Framing = iota // the message is one record
	NewlineDelimited                     // LF ends a record, and a CR before the LF is dropped. The last LF is optional, and empty lines are records
	LengthDelimited                      // each record follows its length as a big-endian uint32
	VarintLengthDelimited                // each record follows its length as a protobuf varint
	Arrow                                // each value of a string or binary column is a record. MILLRACE_FIELD names the column if there are several
	JSONArray                            // the body is a JSON array, and each of its elements is a record
	Auto                                 // the message's Content-Type selects the framing
)

// framings holds the values of MILLRACE_FRAMING, indexed by Framing.
var framings = []string{"none", "newline_delimited", "length_delimited", "varint_length_delimited", "arrow", "json_array", "auto"}

// UnmarshalText parses a value of MILLRACE_FRAMING.
func (f *Framing) UnmarshalText(name []byte) error {
	i := slices.Index(framings, string(name))
	if i < 0 {
		return fmt.Errorf("unknown framing %q: use one of %s", name, strings.Join(framings, ", "))
	}
	*f = Framing(i)
	return nil
}

// String returns the name of the framing.
func (f Framing) String() string {
	if int(f) < len(framings) {
		return framings[f]
	}
	return fmt.Sprintf("Framing(%d)", uint8(f))
}

// mediaTypes holds the media types that Auto recognizes.
var mediaTypes = []struct {
	name    string
	framing Framing
}{
	{"application/x-ndjson", NewlineDelimited},
	{"application/ndjson", NewlineDelimited},
	{"application/jsonl", NewlineDelimited},
	{"application/x-jsonlines", NewlineDelimited},
	{"application/jsonlines", NewlineDelimited},
	{"application/vnd.apache.arrow.stream", Arrow},
	{"application/vnd.millrace.length-delimited", LengthDelimited},
	{"application/vnd.millrace.varint-length-delimited", VarintLengthDelimited},
	{"application/vnd.millrace.json-array", JSONArray},
}

// ContentTypeOf returns a content type for which Auto selects framing f. It is empty for None and Auto.
func ContentTypeOf(f Framing) string {
	for _, known := range mediaTypes {
		if known.framing == f {
			return known.name
		}
	}
	return ""
}

// FramingOf returns the framing that belongs to a content type. It ignores the parameters of the content type, such as
// charset, and the case of its letters. It returns None for an unknown media type.
func FramingOf(contentType string) Framing {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.TrimSpace(mediaType)
	for _, known := range mediaTypes {
		if strings.EqualFold(mediaType, known.name) {
			return known.framing
		}
	}
	return None
}

// Default limits of a Splitter.
const (
	DefaultMaxRecords = 65536
	DefaultMaxBytes   = 64 << 20
)

// Splitter holds the settings for splitting. It is safe for concurrent use.
type Splitter struct {
	Framing Framing

	// Field is the member of each JSON object that is the record, or a path such as doc.body (see jsonfield.Selector). The record is
	// the unescaped string. In Arrow, Field is the column that holds the records. If Field is empty, the record is the whole text.
	// In Arrow, the record is then a value of the only binary or string column.
	Field       string
	NullMissing bool     // a record without Field has the status Null instead of NoField
	Keep        []string // members or Arrow columns that Frame.Kept returns, at most MaxKeep; an absent member isn't an error

	// Annotate is the name of the member that annotated results add to each record, or empty for other results. Each record must then be a
	// JSON object, even if Field is empty. AppendRows must be able to copy all columns of an Arrow stream.
	Annotate string

	MaxRecords int   // maximum number of records in a frame; 0 means DefaultMaxRecords
	MaxBytes   int64 // maximum size of a frame, also after the decompression of Arrow buffers; 0 means DefaultMaxBytes
	MaxRecord  int   // maximum size of a record; 0 means no limit except MaxBytes. A longer record has the status TooLarge
}

// Limits returns the maximum number of bytes and of records of a frame.
func (s *Splitter) Limits() (bytes int64, records int) {
	l := s.limits()
	return int64(l.bytes), l.records
}

// MaxKeep is the maximum number of fields in Splitter.Keep. Field and Annotate are paths too.
const MaxKeep = jsonfield.MaxPaths - 2

// CheckPath returns an error that describes a mistake in a path of Field or Keep. It returns nil for a valid path.
func CheckPath(path string) error {
	_, err := jsonfield.NewSelector([]string{path})
	return err
}

// Selects reports whether the splitter reads members of records. The records are then JSON values, or rows of an Arrow stream.
func (s *Splitter) Selects() bool { return s.Field != "" || len(s.Keep) > 0 || s.Annotate != "" }

// IndexBytes returns the size of a Frame's index per record, in bytes.
func (s *Splitter) IndexBytes() int64 {
	const span = 2 * 4
	bytes := int64(span + 1 + span*len(s.Keep))
	if s.Field != "" {
		bytes += span
	}
	if s.Annotate != "" {
		bytes += 4 // Frame.IsAnnotated
	}
	return bytes
}

// limits are the limits of a Splitter with the defaults filled in. No limit exceeds the maximum of uint32, because the
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

// Open validates body and indexes its records in f. It discards the previous contents of f and reuses the memory. Only the framing Auto
// uses contentType. The frame refers to body until the next Open or Reset, and body must not change until then.
//
// The values of Field are copied into memory of the frame. Blank lines aren't records if the splitter selects members.
//
// Errors are of type *Error. After an error, f has no records. MaxBytes doesn't limit a body without framing. If such a
// body exceeds MaxRecord, its only record has the status TooLarge.
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

// split splits body by its framing. Its result type is error, because a nil *Error in an error would not be nil.
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
	if framing == Arrow {
		err := f.splitArrow(s.Field, body)
		if err == nil && len(s.Keep) > 0 {
			err = f.keepColumns(s.Keep, body)
		}
		if err == nil && s.Annotate != "" {
			err = f.prepareRows()
		}
		return err
	}
	if s.Selects() || framing == JSONArray {
		defer f.members.end()
		if err := f.members.begin(s, body); err != nil {
			return err
		}
	}
	if err := f.splitBytes(framing, body); err != nil {
		return err
	}
	if m := &f.members; s.Field != "" {
		f.endSegment(m.values, !m.tooLarge)
	} else {
		f.endSegment(body, false)
	}
	return nil
}

// splitBytes indexes the records of a body that isn't an Arrow stream.
func (f *Frame) splitBytes(framing Framing, body []byte) error {
	switch framing {
	case NewlineDelimited:
		return f.splitLines(body)
	case LengthDelimited:
		return f.splitLengths(body)
	case VarintLengthDelimited:
		return f.splitVarints(body)
	case JSONArray:
		return f.splitArray(body)
	}
	f.add(0, len(body))
	return nil
}

// splitLines indexes the lines of body. LF ends a line, and one CR directly before it is dropped. The last LF is optional,
// and there is no empty line after it. A blank line is a record, unless records are JSON.
func (f *Frame) splitLines(body []byte) error {
	for pos := 0; pos < len(body); {
		end, next := len(body), len(body)
		if n := bytes.IndexByte(body[pos:], '\n'); n >= 0 {
			end, next = pos+n, pos+n+1
			if n > 0 && body[end-1] == '\r' {
				end--
			}
		}
		switch {
		case f.members.on && jsonfield.IsBlank(body[pos:end]):
		case f.isFull():
			return f.tooMany(pos)
		default:
			f.add(pos, end)
		}
		pos = next
	}
	return nil
}

// splitLengths indexes records. Each record follows its length, a big-endian uint32.
func (f *Frame) splitLengths(body []byte) error {
	const size = 4
	for pos := 0; pos < len(body); {
		if f.isFull() {
			return f.tooMany(pos)
		}
		left := len(body) - pos - size
		if left < 0 {
			return f.misframed(pos, "the length of record %d takes %d bytes, but the body has only %d more", f.Records(), size, left+size)
		}
		n := binary.BigEndian.Uint32(body[pos:])
		if uint64(n) > uint64(left) {
			return f.overrun(pos, uint64(n), left)
		}
		start := pos + size
		pos = start + int(n)
		f.add(start, pos)
	}
	return nil
}

// splitVarints indexes records. Each record follows its length, a protobuf varint.
func (f *Frame) splitVarints(body []byte) error {
	for pos := 0; pos < len(body); {
		if f.isFull() {
			return f.tooMany(pos)
		}
		n, size := binary.Uvarint(body[pos:])
		left := len(body) - pos - size
		switch {
		case size < 0 || size == 0 && left >= binary.MaxVarintLen64:
			return f.misframed(pos, "the length of record %d is no varint of 64 bits", f.Records())
		case size == 0:
			return f.misframed(pos, "the body ends within the length of record %d", f.Records())
		case n > uint64(left):
			return f.overrun(pos, n, left)
		}
		start := pos + size
		pos = start + int(n)
		f.add(start, pos)
	}
	return nil
}

// overrun returns the error for a record whose length, at offset, exceeds the rest of the body.
func (f *Frame) overrun(offset int, length uint64, left int) error {
	return f.misframed(offset, "record %d has a length of %d bytes, but the body has only %d more", f.Records(), length, left)
}
