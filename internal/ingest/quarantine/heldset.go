package quarantine

import (
	"slices"

	"millrace/internal/ingest/inflight"
)

// heldSet is what a worker holds while it pulls carefully: suspects, and fresh payloads that came between them. A
// payload in it that waits while another is tried is delivered once more if that one breaks the device, so little is
// taken in hand at once, and the highest level is tried first: a payload that is tried alone never waits in vain.
type heldSet struct {
	g     *inflight.Batch // keeps the deliveries alive
	left  []int           // of the group's items, those not tried yet
	bytes int             // of all items, headers included
	top   int             // the highest level
}

func (h *heldSet) add(d inflight.Delivery) {
	h.left = append(h.left, len(h.g.Items))
	h.g.Add(d)
	h.bytes += len(d.Msg.Data()) + d.HeaderBytes
	h.top = max(h.top, d.Level)
}

// room is how many more may be taken in hand so that those of the highest level can be tried with all others; not more
// than about most bytes.
func (h *heldSet) room(l Levels, most int) int {
	if h.bytes >= most {
		return 0
	}
	return max(l.size(h.top)-len(h.left), 0)
}

// next takes out what is to be tried next: items of the highest level there is, oldest first, as many as that level
// and a batch of most bytes allow. It is empty when nothing is left.
func (h *heldSet) next(l Levels, most int) (level int, part []int) {
	for _, i := range h.left {
		level = max(level, h.g.Items[i].Level)
	}
	size, bytes := l.size(level), 0
	h.left = slices.DeleteFunc(h.left, func(i int) bool {
		d := &h.g.Items[i]
		n := len(d.Msg.Data())
		if d.Level != level || len(part) >= size || bytes+n > most {
			return false
		}
		part = append(part, i)
		bytes += n
		return true
	})
	return level, part
}

// clear makes the hand ready for more, once all of it is tried.
func (h *heldSet) clear() {
	h.g.Clear()
	h.left, h.bytes, h.top = h.left[:0], 0, 0
}
