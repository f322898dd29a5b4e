package quarantine

import "time"

// strictness is the degree to which the pull isolates payloads.
type strictness uint8

const (
	relaxed  strictness = iota // no quarantined payload can arrive, so the worker prefetches
	cautious                   // payloads that were delivered once before may arrive
	strict                     // payloads that were delivered several times may arrive, and one of them may break the device
)

// caution determines the strictness of the pull. After the death of a process, a prefetched message can't be distinguished from a
// tried one, because the server counts both as delivered. The worker therefore prefetches only while no quarantined payload can
// arrive. caution infers this from recently delivered quarantined payloads, and from the consumer's number of outstanding
// deliveries.
type caution struct {
	horizon time.Duration // maximum time until an unsettled payload is redelivered

	cautiousUntil time.Time
	strictUntil   time.Time
}

// saw records a delivery with the given quarantine level.
func (c *caution) saw(level int, now time.Time) {
	if level >= 1 {
		c.cautiousUntil = now.Add(c.horizon)
	}
	if level >= 2 {
		c.strictUntil = now.Add(c.horizon)
	}
}

// begin records the number of outstanding deliveries at the start of the worker, and the number of redeliveries among them. These
// deliveries belong to other workers, including dead ones.
func (c *caution) begin(outstanding, redelivered int, now time.Time) {
	if outstanding > 0 {
		c.saw(1, now)
	}
	if redelivered > 0 {
		c.saw(2, now)
	}
}

// heard records later numbers of outstanding deliveries and redeliveries. own is the number of deliveries that this worker holds.
// If it holds all outstanding deliveries, no quarantined payload is left at the server. If no delivery is a redelivery, the next
// delivery of each payload is at most the second one.
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
