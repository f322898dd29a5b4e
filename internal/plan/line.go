package plan

import (
	"math"
	"time"

	"millrace/internal/device/sim"
)

// point is a time measured for a size.
type point struct {
	bytes   int
	seconds float64
	weight  float64 // more than 0
}

// fitCost fits a latency and a rate to points by least squares of the relative errors, so that a size of 64 KiB
// weighs as much as one of 64 MiB. Neither comes out negative: where the best line would cross zero, the best one
// without a latency is taken, and where times fall with the size, the best constant. One size alone gives no
// latency. There must be a point, and points must have bytes and times above 0.
func fitCost(points []point) sim.Cost {
	// With u = 1/t and v = bytes/t, the sum of w (latency u + v/rate - 1)^2 is to be least.
	var uu, uv, vv, u, v float64
	for _, p := range points {
		x, y := 1/p.seconds, float64(p.bytes)/p.seconds
		uu, uv, vv = uu+p.weight*x*x, uv+p.weight*x*y, vv+p.weight*y*y
		u, v = u+p.weight*x, v+p.weight*y
	}
	latency, each := 0.0, v/vv
	// The determinant is 0 for one size; rounding may leave a little of it.
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

// timeOf is what a batch of that size takes.
func timeOf(c sim.Cost, bytes int) time.Duration {
	t := c.Latency
	if c.BytesPerSecond > 0 {
		t += seconds(float64(bytes) / c.BytesPerSecond)
	}
	return t
}
