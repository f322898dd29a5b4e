package cliclient

import (
	"slices"
	"strings"
	"testing"

	"millrace/client"
	"millrace/internal/operator"
)

// TestTheLastOfSeveralFirstTokens has results of in.web and other.web, which have the same subject. The limit applies
// only to results of the selected inputs.
func TestTheLastOfSeveralFirstTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 600 {
		m := result(t, operator.JSON, i, nil, "x")
		if i%100 != 7 {
			m.Header.Set(client.HeaderSubject, "other.web")
		}
		r.publish(m)
	}
	for _, c := range []struct {
		subject string
		last    uint64
		want    []uint64
		note    bool
	}{
		{"in.web", 2, []uint64{407, 507}, true},
		{"in.*", 6, []uint64{7, 107, 207, 307, 407, 507}, true}, // results of other inputs precede these
		{"in.web", 7, []uint64{7, 107, 207, 307, 407, 507}, false},
		{"other.web", 2, []uint64{598, 599}, true},
		{"*.web", 1, []uint64{599}, true},
	} {
		p, out, notes := r.printer()
		p.Topology.Subjects = []string{"in.>", "other.>"}
		p.All, p.Last, p.Subject = false, c.last, c.subject
		if err := p.Print(r.Ctx()); err != nil {
			t.Fatal(err)
		}
		if got := sequences(t, out); !slices.Equal(got, c.want) || strings.Contains(notes.String(), "OUT may have more") != c.note {
			t.Errorf("the last %d of %s: the inputs %v, want %v; notes %q", c.last, c.subject, got, c.want, notes)
		}
	}
}
