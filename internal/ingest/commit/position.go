package commit

// Position identifies an input: its sequence in the input stream, and when the stream stored it, in nanoseconds since 1970. A stream
// that was restored from an older copy uses its sequences a second time, with other times.
type Position struct {
	Sequence uint64 `json:"sequence"`
	Stored   int64  `json:"stored,omitempty"`
}

// Covers reports whether the settled inputs up to p include that one.
func (p Position) Covers(in Position) bool { return in.Sequence <= p.Sequence && in.Stored <= p.Stored }
