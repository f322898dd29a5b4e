package quarantine

import "time"

// strictness is how carefully a worker pulls.
type strictness uint8

const (
	relaxed  strictness = iota // no quarantined payload can come: prefetch
	cautious                   // payloads may come that were delivered once before
	strict                     // payloads may come that were delivered several times, and one of them may be to blame
)

// caution decides how carefully to pull. A prefetched message counts as delivered: if the process dies, it looks as if it had
// been tried. So the worker prefetches only while no quarantined payload can come. caution determines that from the quarantined
// payloads that were delivered recently, and from the number of deliveries that the consumer has outstanding.
type caution struct {
	horizon time.Duration // latest time until an unsettled payload is redelivered: AckWait, or the longest delay of a nak

	cautiousUntil time.Time
	strictUntil   time.Time
}

// saw records a delivery of that level.
func (c *caution) saw(level int, now time.Time) {
	if level >= 1 {
		c.cautiousUntil = now.Add(c.horizon)
	}
	if level >= 2 {
		c.strictUntil = now.Add(c.horizon)
	}
}

// begin records how many deliveries are outstanding when the worker starts, and how many of those are redeliveries. Other workers
// may have them, or a dead one had them.
func (c *caution) begin(outstanding, redelivered int, now time.Time) {
	if outstanding > 0 {
		c.saw(1, now)
	}
	if redelivered > 0 {
		c.saw(2, now)
	}
}

// heard updates these numbers later. If this worker holds all outstanding deliveries, no quarantined payload is left. If none of
// them is a redelivery, the next delivery of each is at most its second.
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
