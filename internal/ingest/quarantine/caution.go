package quarantine

import "time"

// strictness is how carefully a worker pulls.
type strictness uint8

const (
	relaxed  strictness = iota // nothing is known to have gone wrong: pull far ahead
	cautious                   // payloads may come that were delivered once before: a prefetch, or a lost batch
	strict                     // payloads may come that were delivered several times: one of them may be to blame
)

// caution knows how carefully to pull. What is pulled ahead is delivered, and if the process dies it counts as tried
// though it never was; so far ahead is pulled only while nothing suspect is about. That is known from the suspects
// seen lately, and from what the consumer says of deliveries that nobody has settled.
type caution struct {
	horizon time.Duration // how long a suspect that nobody has can stay away: AckWait, or the longest delay of a nak

	cautiousUntil time.Time
	strictUntil   time.Time
}

// saw notes a delivery of that level.
func (c *caution) saw(level int, now time.Time) {
	if level >= 1 {
		c.cautiousUntil = now.Add(c.horizon)
	}
	if level >= 2 {
		c.strictUntil = now.Add(c.horizon)
	}
}

// begin is what a worker knows at its start: of the deliveries that nobody has settled, how many there are and how many
// of them came again. Other workers may have them, or a dead one.
func (c *caution) begin(outstanding, redelivered int, now time.Time) {
	if outstanding > 0 {
		c.saw(1, now)
	}
	if redelivered > 0 {
		c.saw(2, now)
	}
}

// heard is what the consumer says later on. Where this worker has all that is outstanding nothing suspect is left, and
// where nothing outstanding came again the next delivery of it is the second at most.
func (c *caution) heard(outstanding, redelivered, own int) {
	if redelivered == 0 || outstanding <= own {
		c.strictUntil = time.Time{}
	}
	if outstanding <= own {
		c.cautiousUntil = time.Time{}
	}
}

func (c *caution) level(now time.Time) strictness {
	switch {
	case now.Before(c.strictUntil):
		return strict
	case now.Before(c.cautiousUntil):
		return cautious
	}
	return relaxed
}
