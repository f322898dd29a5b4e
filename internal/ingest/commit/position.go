package commit

// Position identifies an input by its sequence in the input stream and the time when the stream stored it, in
// nanoseconds since 1970. A stream that was restored from an older copy reuses sequences at other times.
type Position struct {
	Sequence uint64 `json:"sequence"`
	Stored   int64  `json:"stored,omitempty"`
}

// Covers reports whether in is among the inputs up to p.
func (p Position) Covers(in Position) bool { return in.Sequence <= p.Sequence && in.Stored <= p.Stored }
