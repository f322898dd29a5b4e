package partitioned

import (
	"fmt"
	"strings"

	"millrace/internal/ingest/quarantine"
)

// suspect identifies a frame, and the run of its records that was alone on the device when an owner died.
type suspect struct {
	sequence uint64
	// stored is the time when the stream stored the frame, in nanoseconds since 1970. A recreated stream reuses
	// sequences.
	stored int64
	quarantine.Narrowing
}

func (s suspect) String() string { return fmt.Sprintf("%d %d %v", s.sequence, s.stored, s.Narrowing) }

// parseSuspect parses the result of String. It returns the zero suspect for any other text.
func parseSuspect(text string) suspect {
	var s suspect
	if n, err := fmt.Sscanf(text, "%d %d", &s.sequence, &s.stored); err != nil || n != 2 {
		return suspect{}
	}
	_, rest, _ := strings.Cut(text, " ")
	_, rest, _ = strings.Cut(rest, " ")
	s.Narrowing = quarantine.ParseNarrowing(rest)
	return s
}
