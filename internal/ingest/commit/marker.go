package commit

import (
	"encoding/json"
	"time"
)

// Marker is the body of a commit marker, as JSON.
type Marker struct {
	Position         // every input of the partition up to it is settled
	Created  int64   `json:"input_created"`     // when the input stream was created, in nanoseconds since 1970
	Owner    string  `json:"owner"`             // the lease that stored the marker
	Number   uint64  `json:"number"`            // the lease's markers in their order
	Fast     bool    `json:"fast,omitempty"`    // a fast batch may follow: messages behind the marker may be stored without a marker that covers them
	Since    uint64  `json:"since,omitempty"`   // such messages may also be before the marker, behind this stream sequence
	LookUp   uint64  `json:"look_up,omitempty"` // inputs up to this sequence may have results of workers without markers
	Letters  Letters `json:"letters,omitempty"` // dead letters of inputs above Position

	Until uint64 `json:"-"` // the last input that may have messages behind the last marker, if a fast batch is stored with this one
}

// StoredMarker is a marker in the stream.
type StoredMarker struct {
	Marker
	At uint64 // its own stream sequence; 0 if there is no marker
}

// begins returns the sequence behind which messages may be stored that no marker covers; 0 if there are none.
func (s *StoredMarker) begins() uint64 {
	switch {
	case s.Since > 0:
		return s.Since
	case s.Fast:
		return s.At
	}
	return 0
}

// of reports whether the marker counts inputs of the stream that was created then.
func (s *StoredMarker) of(created time.Time) bool {
	return s.At > 0 && s.Created == created.UnixNano()
}

// body returns the body of the marker's message.
func (m *Marker) body() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has only numbers, strings and bytes
	}
	return data
}
