package audit

import "testing"

// TestTheOrderBeginsWithTheFirstMarker shows that the audit doesn't check results before the first marker, which have
// no guaranteed order.
func TestTheOrderBeginsWithTheFirstMarker(t *testing.T) {
	t.Parallel()
	o := &order{partitions: []place{{begins: 10}}}
	for _, c := range []struct {
		at, input uint64
		wrong     bool
	}{{8, 7, false}, {11, 3, false}, {12, 5, false}, {13, 4, true}} {
		m := &message{sequence: c.input, stored: int64(c.input), subject: "in.a"}
		if wrong := o.enter(c.at, m); (wrong != "") != c.wrong {
			t.Errorf("the result of input %d, message %d: %q", c.input, c.at, wrong)
		}
	}
}
