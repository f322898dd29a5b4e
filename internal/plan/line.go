package plan

import (
	"math"
	"time"

	"millrace/internal/device/sim"
)

// point is a measured time for one size.
type point struct {
	bytes   int
	seconds float64
	weight  float64 // greater than 0
}

// fitCost fits a latency and a rate to points. It minimizes the squared relative errors, so that a size of 64 KiB has
// as much weight as one of 64 MiB. Neither result is negative: if the best latency would be negative, fitCost returns
// the best line without a latency, and if times fall as the size grows, it returns the best constant. A single size
// gives no latency. There must be at least one point, with bytes and seconds above 0.
func fitCost(points []point) sim.Cost {
	// With u = 1/t and v = bytes/t, minimize the sum of w (latency u + v/rate - 1)^2.
	var uu, uv, vv, u, v float64
	for _, p := range points {
		x, y := 1/p.seconds, float64(p.bytes)/p.seconds
		uu, uv, vv = uu+p.weight*x*x, uv+p.weight*x*y, vv+p.weight*y*y
		u, v = u+p.weight*x, v+p.weight*y
	}
	latency, each := 0.0, v/vv
	// The determinant is 0 if there is only one size, up to rounding errors.
	if det := uu*vv - uv*uv; det > 1e-9*uu*vv {
		latency, each = (u*vv-v*uv)/det, (v*uu-u*uv)/det
	}
	switch {
	case latency < 0:
		latency, each = 0, v/vv
	case each <= 0:
		latency, each = u/uu, 0
	}
	cost := sim.Cost{Latency: time.Duration(math.Round(latency * float64(time.Second)))}
	if each > 0 {
		cost.BytesPerSecond = 1 / each
	}
	return cost
}

// timeOf returns how long a batch of that size takes.
func timeOf(c sim.Cost, bytes int) time.Duration {
	t := c.Latency
	if c.BytesPerSecond > 0 {
		t += seconds(float64(bytes) / c.BytesPerSecond)
	}
	return t
}
