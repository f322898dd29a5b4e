package partition

import (
	"fmt"
	"math"
)

// Caution is how carefully a partition is worked on. Its worker may have died of one of the payloads that come first, and
// the next one must not die of it again and again: with every death batches get smaller, until the payload that kills is
// alone. Delivery counts do not tell, since a lease that begins anew starts them over.
//
// It is kept with the consumer, as metadata, while somebody works on the partition, so that it outlives the worker.
type Caution struct {
	Floor  uint64 // the stream sequence up to which all was acknowledged when the lease began
	Until  uint64 // up to which stream sequence caution is due: what had been delivered when somebody died
	Deaths int    // leases that ended before they came as far as that; counted up to where payloads go alone
	Trials int    // of those, the last ones, in which the same payload was first and alone
}

const (
	shrink = 16 // how much smaller batches get with each death

	// alone is from which death on payloads are worked on one by one: of 8192 payloads, batches of 512, 32, 2 and 1.
	alone = 4

	// trials is how often a payload that is first and alone may be the death of a worker before it is given up.
	trials = 2
)

// AfterDeath is the caution due when a lease with caution c has died, and the consumer has acknowledged up to floor and
// delivered up to delivered. onDevice says that the worker died while a payload was alone on the device.
func (c Caution) AfterDeath(floor, delivered uint64, onDevice bool) Caution {
	next := Caution{Floor: floor, Until: max(c.Until, delivered), Deaths: 1}
	if floor < c.Until {
		next.Deaths = min(c.Deaths+1, alone)
	}
	if c.Deaths == alone && c.Floor == floor {
		next.Trials = c.Trials
		if onDevice {
			next.Trials++
		}
	}
	return next
}

// Begin is the caution of a lease that begins at floor, after one that ended of itself with caution c.
func (c Caution) Begin(floor uint64) Caution {
	if floor >= c.Until {
		return Caution{Floor: floor}
	}
	c.Floor, c.Trials = floor, 0
	return c
}

// Relaxed is the caution due at floor once all the suspects have been acknowledged: little, up to where somebody had died.
func (c Caution) Relaxed(floor uint64) Caution {
	if floor >= c.Until {
		return Caution{Floor: floor}
	}
	return Caution{Floor: floor, Until: c.Until, Deaths: 1}
}

// Suspects is how many payloads above the floor are suspects, where most go into a batch without caution. With caution
// there is one batch at a time, so what killed was in the last one, the first above the floor.
func (c Caution) Suspects(most int) int {
	if c.Deaths <= 1 {
		return math.MaxInt
	}
	return Caution{Deaths: c.Deaths - 1}.BatchPayloads(most)
}

// Due says whether there is reason for caution with payloads above floor.
func (c Caution) Due(floor uint64) bool { return c.Deaths > 0 && floor < c.Until }

// Alone says that payloads are worked on one by one.
func (c Caution) Alone() bool { return c.Deaths >= alone }

// BatchPayloads is how many payloads a batch may have, where it is most without caution.
func (c Caution) BatchPayloads(most int) int {
	if c.Alone() {
		return 1
	}
	for range c.Deaths {
		most /= shrink
	}
	return max(most, 1)
}

// GiveUp says that the first payload above the floor was first and alone often enough: it is to become a dead letter.
func (c Caution) GiveUp() bool { return c.Trials >= trials }

// String is the form in which a Caution is kept.
func (c Caution) String() string {
	return fmt.Sprintf("floor=%d until=%d deaths=%d trials=%d", c.Floor, c.Until, c.Deaths, c.Trials)
}

// ParseCaution reads String's form. What is not of that form is no reason for caution.
func ParseCaution(text string) Caution {
	var c Caution
	n, err := fmt.Sscanf(text, "floor=%d until=%d deaths=%d trials=%d", &c.Floor, &c.Until, &c.Deaths, &c.Trials)
	if err != nil || n != 4 || c.Deaths < 0 || c.Trials < 0 {
		return Caution{}
	}
	return c
}
