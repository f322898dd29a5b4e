package commit

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// Leftovers is what earlier owners have stored of the results of inputs that the last marker doesn't cover. It is not safe for concurrent use.
type Leftovers struct {
	readings
	until uint64 // the last input that may have some
}

// Find returns what is stored of the result of an input: whether all of it is, and otherwise the ids of its messages that are. They have
// that subject, and ids that begin with id.
func (l *Leftovers) Find(ctx context.Context, in Position, subject, id string) (done bool, parts []string, err error) {
	if in.Sequence > l.until {
		l.ids = nil // it isn't asked for any more
		return false, nil, nil
	}
	ids, err := l.of(ctx, subject)
	if err != nil {
		return false, nil, err
	}
	var last *storedID
	for i, each := range ids {
		if each.id == id {
			last = &ids[i]
		}
		if each.id == id || strings.HasPrefix(each.id, id+"/") {
			parts = append(parts, each.id)
		}
	}
	if last == nil || last.lacks(parts) {
		return false, parts, nil
	}
	return true, nil, nil
}

// lacks reports whether a part before the last one isn't among those that are stored.
func (s *storedID) lacks(stored []string) bool {
	for i := 1; i < s.parts; i++ {
		if !slices.Contains(stored, s.id+"/"+strconv.Itoa(i)+"/"+s.cut) {
			return true
		}
	}
	return false
}
