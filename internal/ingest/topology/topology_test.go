package topology

import "testing"

func TestDeliveryLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ours, servers, want int }{
		{5, -1, 5}, {5, 0, 5}, {5, 10, 5}, {5, 6, 5}, {5, 5, 4}, {5, 2, 1},
		{5, 1, 1}, // the only delivery is used for a try
	} {
		if got := DeliveryLimit(c.ours, c.servers); got != c.want {
			t.Errorf("DeliveryLimit(%d, %d) = %d, want %d", c.ours, c.servers, got, c.want)
		}
	}
}
