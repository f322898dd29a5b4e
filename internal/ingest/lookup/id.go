package lookup

import (
	"strconv"
	"strings"
)

// newestMillis is the largest number behind a sequence that counts milliseconds, as ids of adr/0028 had it; a number of nanoseconds is
// larger since 1970-01-02.
const newestMillis = 1e14

// parse reads what input a message with that id is of. old is true where the id is of an earlier version, which does not say
// when the input was stored. ok is false for an id that is of no input of the stream.
func parse(id, stream string) (in Input, old, ok bool) {
	rest, ok := strings.CutPrefix(id, stream+":")
	if !ok {
		return Input{}, false, false
	}
	number, rest, _ := strings.Cut(rest, ":")
	sequence, err := strconv.ParseUint(number, 10, 64)
	if err != nil || sequence == 0 {
		return Input{}, false, false
	}
	number, _, _ = strings.Cut(rest, ":") // behind it is a dead letter's reason
	stored, err := strconv.ParseInt(number, 10, 64)
	if err != nil || stored < newestMillis {
		return Input{Sequence: sequence}, true, true
	}
	return Input{Sequence: sequence, Stored: stored}, false, true
}
