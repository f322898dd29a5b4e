package commit

import (
	"context"
	"strings"
)

// Leftovers finds stored results of earlier owners for inputs that the last marker doesn't cover. It is not safe for
// concurrent use.
type Leftovers struct {
	readings
	until uint64 // last input that may have such results
}

// Find looks for the stored messages of an input's result on the given subject. done reports whether the last message,
// with the given id, is stored. parts contains the ids of the stored parts, which begin with id + "/". Publishers never
// store the last message before the parts.
func (l *Leftovers) Find(ctx context.Context, in Position, subject, id string) (done bool, parts []string, err error) {
	if in.Sequence > l.until {
		l.ids = nil // inputs are in order, so the ids are not needed any longer
		return false, nil, nil
	}
	ids, err := l.of(ctx, subject)
	for _, each := range ids {
		switch {
		case each == id:
			done = true
		case strings.HasPrefix(each, id+"/"):
			parts = append(parts, each)
		}
	}
	return done, parts, err
}
