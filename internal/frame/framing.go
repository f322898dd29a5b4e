package frame

import (
	"fmt"
	"slices"
	"strings"
)

// Framing is the way in which a message body holds records.
type Framing uint8

const (
	None                  Framing = iota // the message is one record
	NewlineDelimited                     // LF ends a record. A CR before it is dropped. The last LF is optional, and empty lines are records
	LengthDelimited                      // each record follows its length as a big-endian uint32
	VarintLengthDelimited                // each record follows its length as a protobuf varint
	Arrow                                // each value of a string or binary column is a record. MILLRACE_ARROW_COLUMN names the column if there are several
	Auto                                 // the message's Content-Type selects the framing
)

// framings holds the names that MILLRACE_FRAMING takes, by Framing.
var framings = []string{"none", "newline_delimited", "length_delimited", "varint_length_delimited", "arrow", "auto"}

// ParseFraming returns the framing with the given name.
func ParseFraming(name string) (Framing, error) {
	i := slices.Index(framings, name)
	if i < 0 {
		return None, fmt.Errorf("unknown framing %q: use one of %s", name, strings.Join(framings, ", "))
	}
	return Framing(i), nil
}

// String returns the name of the framing.
func (f Framing) String() string {
	if int(f) < len(framings) {
		return framings[f]
	}
	return fmt.Sprintf("Framing(%d)", uint8(f))
}

// mediaTypes holds the media types that Auto knows.
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
}

// ContentTypeOf returns the content type by which Auto recognizes a framing. It is empty for None and Auto.
func ContentTypeOf(f Framing) string {
	for _, known := range mediaTypes {
		if known.framing == f {
			return known.name
		}
	}
	return ""
}

// FramingOf returns the framing that belongs to a content type. It ignores the parameters of the content type, such as
// charset, and the case of its letters. It returns None for every media type that it doesn't know.
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
