package natsconn

import (
	"testing"

	"github.com/nats-io/nats.go"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	a, b, c := &nats.Conn{}, &nats.Conn{}, &nats.Conn{}
	one, three := Connections{a}, Connections{a, b, c}
	for _, exclusive := range []bool{false, true} {
		if got := one.ForResults(exclusive); len(got) != 1 || got[0] != a || one.ForPartition(5, 2) != a {
			t.Error("one connection is not for everything")
		}
	}
	if got := three.ForResults(false); len(got) != 2 || got[0] != b || got[1] != c {
		t.Error("of three connections the last two are not for results, with shared delivery")
	}
	if got := three.ForResults(true); len(got) != 1 || got[0] != a {
		t.Error("of three connections the first is not for results, with exclusive delivery")
	}
	for n, want := range []*nats.Conn{c, b, c, b} {
		if three.ForPartition(5, n) != want {
			t.Errorf("lease %d on partition 5 is not over the next connection that is not for results", n)
		}
	}
}
