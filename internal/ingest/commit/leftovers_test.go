package commit

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestLeftoversOfOneResult shows that results of other inputs on the same subject are ignored, even if their ids
// begin with the input's id.
func TestLeftoversOfOneResult(t *testing.T) {
	t.Parallel()
	s := &modelStream{t: t}
	for _, id := range []string{"IN:12", "IN:12/1", "IN:3/1", "IN:1/1", "IN:1/2", "IN:4"} {
		s.stored = append(s.stored, modelMessage{subject: "results.a", header: nats.Header{jetstream.MsgIDHeader: {id}}})
	}
	l := &Leftovers{readings: readings{store: s, behind: 1, before: uint64(len(s.stored))}, until: 12}
	for _, c := range []struct {
		input uint64
		id    string
		done  bool
		parts []string
	}{
		{1, "IN:1", false, []string{"IN:1/1", "IN:1/2"}}, {3, "IN:3", false, []string{"IN:3/1"}}, {4, "IN:4", true, nil}, {5, "IN:5", false, nil},
		{12, "IN:12", false, []string{"IN:12/1"}}, // its last part isn't behind the marker
		{13, "IN:1", false, nil},                  // no earlier owner had this input
	} {
		done, parts, err := l.Find(t.Context(), Position{Sequence: c.input}, "results.a", c.id)
		if err != nil || done != c.done || !slices.Equal(parts, c.parts) {
			t.Errorf("of input %d, %s: done %v, parts %q, %v; want %v, %q", c.input, c.id, done, parts, err, c.done, c.parts)
		}
	}
}
