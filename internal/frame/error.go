package frame

import "fmt"

// Reason is why a body has no records. It is the reason of the message's dead letter.
type Reason string

const (
	Invalid  Reason = "invalid_frame" // the body can't be parsed
	TooLarge Reason = "too_large"     // the body exceeds a limit of the Splitter
)

// Error reports a body that can't be split into records.
type Error struct {
	Reason Reason
	Offset int64  // position of the fault in the body, in bytes
	Text   string // what is wrong and what to do
}

// Error returns the reason, the position and the text.
func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d: %s", e.Reason, e.Offset, e.Text) }

// invalid returns the error for a fault at an offset.
func invalid(offset int, format string, args ...any) *Error {
	return &Error{Reason: Invalid, Offset: int64(offset), Text: fmt.Sprintf(format, args...)}
}

// tooLarge returns the error for a limit that is exceeded at an offset.
func tooLarge(offset int, format string, args ...any) *Error {
	return &Error{Reason: TooLarge, Offset: int64(offset), Text: fmt.Sprintf(format, args...)}
}
