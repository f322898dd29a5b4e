// Package record describes the records of a message: the unit that operators work on. A message without framing is one
// record, and a frame holds many. Package frame reports the status of each record, and the result encoders publish it.
//
// Start reading at Status.
package record

// Status tells what became of a record.
type Status uint8

const (
	OK       Status = iota // the record has results
	Null                   // it is null in its Arrow column: its length is 0
	TooLarge               // it is longer than a record may be, so no operator saw it
	Failed                 // an operator rejected it or failed on it
)

// String returns the name of the status in results.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Null:
		return "null"
	case TooLarge:
		return "too_large"
	case Failed:
		return "failed"
	}
	return "unknown"
}
