package client

import "strconv"

// Input identifies an input. A publish acknowledgement has the same stream and sequence.
type Input struct {
	Stream   string
	Sequence uint64 // in the stream, from 1
}

// InputOf returns the input of a result or of a dead letter, given the message's headers. It returns false if the message is neither.
// Such messages are in the same streams: commit markers of exclusive delivery, delete markers of the server, and payloads that a dead
// letter names because they are too large for it. Acknowledge and ignore them.
func InputOf(header map[string][]string) (Input, bool) {
	sequence, err := strconv.ParseUint(first(header, HeaderSequence), 10, 64)
	return Input{first(header, HeaderStream), sequence}, err == nil
}

// first returns the first value of a header, or the empty string.
func first(header map[string][]string, name string) string {
	if values := header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
