package main

import (
	"testing"

	"millrace/internal/config"
)

func TestConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		delivery  string
		set, want int
	}{
		{"shared", 0, 2}, {"exclusive", 0, 4}, {"shared", 3, 3}, {"exclusive", 1, 1},
	} {
		cfg := &config.Config{Delivery: c.delivery}
		cfg.NATS.Connections = c.set
		if got := connections(cfg); got != c.want {
			t.Errorf("%s delivery with %d set has %d connections, want %d", c.delivery, c.set, got, c.want)
		}
	}
}
