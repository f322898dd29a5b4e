package lookup

import (
	"strconv"
	"strings"
)

// parse returns the input that the given message id belongs to. ok is false if it belongs to no input of stream.
func parse(id, stream string) (in Input, ok bool) {
	rest, ok := strings.CutPrefix(id, stream+":")
	if !ok {
		return Input{}, false
	}
	number, rest, _ := strings.Cut(rest, ":")
	sequence, err := strconv.ParseUint(number, 10, 64)
	if err != nil || sequence == 0 {
		return Input{}, false
	}
	number = rest
	if end := strings.IndexAny(rest, ":/#"); end >= 0 { // a dead letter's reason, a part or a record follows
		number = rest[:end]
	}
	stored, err := strconv.ParseInt(number, 10, 64)
	if err != nil || stored <= 0 {
		return Input{}, false
	}
	return Input{Sequence: sequence, Stored: stored}, true
}

// isPartial reports whether the message with the given id doesn't settle its input. Such a message is the dead letter
// of a record, or a part before the last one. part is the message's header Millrace-Part.
func isPartial(id, part string) bool {
	if strings.LastIndexByte(id, '#') > strings.LastIndexByte(id, ':') {
		return true
	}
	n, of, ok := strings.Cut(part, "/")
	return ok && n != of
}
