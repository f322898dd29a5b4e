package commit

import (
	"encoding/json"
	"time"
)

// Marker is the body of a commit marker, as JSON.
type Marker struct {
	Position         // position up to which every input of the partition is settled
	Created  int64   `json:"input_created"`     // time when the input stream was created, in nanoseconds since 1970
	Owner    string  `json:"owner"`             // the lease that stored the marker
	Number   uint64  `json:"number"`            // number of the marker in its lease
	Fast     bool    `json:"fast,omitempty"`    // whether a fast batch may follow; its messages may be stored without their marker
	Since    uint64  `json:"since,omitempty"`   // stream sequence after which messages that no marker covers may be stored; 0 if there are none
	LookUp   uint64  `json:"look_up,omitempty"` // last sequence of the inputs that may have results of workers without markers
	Letters  Letters `json:"letters,omitempty"` // dead letters of inputs above Position

	Until uint64 `json:"-"` // last input that may have messages in the fast batch of this marker
}

// StoredMarker is a marker in the stream.
type StoredMarker struct {
	Marker
	At uint64 // stream sequence of the marker; 0 if there is no marker
}

// begins returns the stream sequence after which messages that no marker covers may be stored, or 0.
func (s *StoredMarker) begins() uint64 {
	switch {
	case s.Since > 0:
		return s.Since
	case s.Fast:
		return s.At
	}
	return 0
}

// of reports whether the marker's position is in the input stream that was created at the given time.
func (s *StoredMarker) of(created time.Time) bool {
	return s.At > 0 && s.Created == created.UnixNano()
}

func (m *Marker) body() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // a marker contains only numbers, strings and bytes
	}
	return data
}
