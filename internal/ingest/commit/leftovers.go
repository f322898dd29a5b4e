package commit

import (
	"context"
	"strings"
)

// Leftovers is what earlier owners have stored of the results of inputs that the last marker doesn't cover. It is not safe for concurrent use.
type Leftovers struct {
	readings
	until uint64 // the last input that may have some
}

// Find returns what is stored of the result of an input: whether its last message is, and the ids of parts before that. The messages have
// that subject, and ids that begin with id. The last message is never stored without the parts.
func (l *Leftovers) Find(ctx context.Context, in Position, subject, id string) (done bool, parts []string, err error) {
	if in.Sequence > l.until {
		l.ids = nil // it isn't asked for any more
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
