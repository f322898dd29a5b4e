package quarantine

import (
	"slices"

	"millrace/internal/ingest/inflight"
)

// heldSet holds the untried deliveries of a Controller: quarantined payloads and new payloads that arrived in between. If one
// payload breaks the device, all payloads in the set are redelivered with a higher level. The set is therefore small, and the
// highest level is tried first. A payload that runs alone never waits for another payload.
type heldSet struct {
	g     *inflight.Batch // keeps the deliveries alive
	left  []int           // indices of the deliveries in g that were not tried yet
	bytes int             // total bytes of all deliveries, including headers
	top   int             // the highest level of the deliveries
}

func (h *heldSet) add(d inflight.Delivery) {
	h.left = append(h.left, len(h.g.Items))
	h.g.Add(d)
	h.bytes += len(d.Msg.Data()) + d.HeaderBytes
	h.top = max(h.top, d.Level)
}

// room returns the number of deliveries that may be added. All deliveries must fit into one batch of the highest level, with
// about limit bytes in total.
func (h *heldSet) room(l Levels, limit int) int {
	if h.bytes >= limit {
		return 0
	}
	return max(l.size(h.top)-len(h.left), 0)
}

// next removes the oldest items of the highest level and returns them. They fit into one batch of that level, with up to limit
// bytes. next returns no items if the set is empty.
func (h *heldSet) next(l Levels, limit int) (level int, part []int) {
	for _, i := range h.left {
		level = max(level, h.g.Items[i].Level)
	}
	size, bytes := l.size(level), 0
	h.left = slices.DeleteFunc(h.left, func(i int) bool {
		d := &h.g.Items[i]
		n := len(d.Msg.Data())
		if d.Level != level || len(part) >= size || len(part) > 0 && bytes+n > limit {
			return false
		}
		part = append(part, i)
		bytes += n
		return true
	})
	return level, part
}

// clear empties the set after all its deliveries were tried.
func (h *heldSet) clear() {
	h.g.Clear()
	h.left, h.bytes, h.top = h.left[:0], 0, 0
}
