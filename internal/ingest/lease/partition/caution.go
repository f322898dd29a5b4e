package partition

import (
	"fmt"
	"math"
)

// Caution counts the deaths of a partition's owners, and limits the batches of the next owner. A payload soon after the
// floor may have killed the last owner, and must not kill one worker after another. Batches get smaller with each
// death, until each payload runs alone. Delivery counts aren't sufficient, because a lease reads most unfinished inputs
// from the stream, and the server doesn't count such reads.
//
// A lease keeps its Caution in the consumer's metadata, so the Caution outlives the worker.
type Caution struct {
	Floor  uint64 // acknowledgement floor when the lease began, a stream sequence
	Until  uint64 // stream sequence of the last delivery before a death; later payloads aren't limited
	Deaths int    // number of leases that died before they reached Until; at most the constant alone
	Trials int    // number of deaths while the same first payload ran alone
}

const (
	shrink = 16 // the factor by which batches shrink with each death

	// alone is the number of deaths after which payloads run one by one. With 8192 payloads, the batch sizes are 512,
	// 32, 2 and 1.
	alone = 4

	// trials is the number of workers that the first payload may kill while it runs alone. After that, the payload
	// becomes a dead letter.
	trials = 2
)

// AfterDeath returns the caution after a lease with caution c died. floor is the consumer's acknowledgement floor and
// delivered is its last delivery, both as stream sequences. onDevice reports whether a payload was alone on the device
// when the worker died.
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

// Begin returns the caution of a lease that begins at floor, after a lease with caution c that ended properly.
func (c Caution) Begin(floor uint64) Caution {
	if floor >= c.Until {
		return Caution{Floor: floor}
	}
	c.Floor, c.Trials = floor, 0
	return c
}

// Relaxed returns the caution at floor after all quarantined payloads have been acknowledged. It is the caution after
// one death, or none if floor has reached Until.
func (c Caution) Relaxed(floor uint64) Caution {
	if floor >= c.Until {
		return Caution{Floor: floor}
	}
	return Caution{Floor: floor, Until: c.Until, Deaths: 1}
}

// Quarantined returns the number of payloads above the floor that may have killed the last worker, or math.MaxInt if
// Deaths is at most 1. limit is the batch size when Deaths is 0. A lease with caution runs one batch at a time. The
// payload that killed the worker was therefore in the first batch above the floor.
func (c Caution) Quarantined(limit int) int {
	if c.Deaths <= 1 {
		return math.MaxInt
	}
	return Caution{Deaths: c.Deaths - 1}.BatchPayloads(limit)
}

// IsDue reports whether the batch after floor must be limited.
func (c Caution) IsDue(floor uint64) bool { return c.Deaths > 0 && floor < c.Until }

// IsAlone reports whether payloads are computed one by one.
func (c Caution) IsAlone() bool { return c.Deaths >= alone }

// BatchPayloads returns the maximum number of payloads per batch. limit is the maximum if Deaths is 0.
func (c Caution) BatchPayloads(limit int) int {
	if c.IsAlone() {
		return 1
	}
	for range c.Deaths {
		limit /= shrink
	}
	return max(limit, 1)
}

// GiveUp reports whether the first payload above the floor must become a dead letter, because enough workers died while
// it ran alone.
func (c Caution) GiveUp() bool { return c.Trials >= trials }

// String returns the text form of c for the metadata.
func (c Caution) String() string {
	return fmt.Sprintf("floor=%d until=%d deaths=%d trials=%d", c.Floor, c.Until, c.Deaths, c.Trials)
}

// ParseCaution parses the result of String. It returns the zero Caution for any other text.
func ParseCaution(text string) Caution {
	var c Caution
	n, err := fmt.Sscanf(text, "floor=%d until=%d deaths=%d trials=%d", &c.Floor, &c.Until, &c.Deaths, &c.Trials)
	if err != nil || n != 4 || c.Deaths < 0 || c.Trials < 0 {
		return Caution{}
	}
	return c
}
