package ingest

import "slices"

// hand is what a worker holds while it pulls carefully: suspects, and fresh payloads that came between them. A
// payload in it that waits while another is tried is delivered once more if that one breaks the device, so little is
// taken in hand at once, and the highest level is tried first: a payload that is tried alone never waits in vain.
type hand struct {
	g     *group // keeps the deliveries alive
	left  []int  // of the group's items, those not tried yet
	bytes int    // of all items, headers included
	top   int    // the highest level
}

func (h *hand) add(d delivery) {
	h.left = append(h.left, len(h.g.items))
	h.g.add(d)
	h.bytes += len(d.msg.Data()) + d.headers
	h.top = max(h.top, d.level)
}

// room is how many more may be taken in hand so that those of the highest level can be tried with all others; not more
// than about most bytes.
func (h *hand) room(l levels, most int) int {
	if h.bytes >= most {
		return 0
	}
	return max(l.size(h.top)-len(h.left), 0)
}

// next takes out what is to be tried next: items of the highest level there is, oldest first, as many as that level
// and a batch of most bytes allow. It is empty when nothing is left.
func (h *hand) next(l levels, most int) (level int, part []int) {
	for _, i := range h.left {
		level = max(level, h.g.items[i].level)
	}
	size, bytes := l.size(level), 0
	h.left = slices.DeleteFunc(h.left, func(i int) bool {
		d := &h.g.items[i]
		n := len(d.msg.Data())
		if d.level != level || len(part) >= size || bytes+n > most {
			return false
		}
		part = append(part, i)
		bytes += n
		return true
	})
	return level, part
}

// clear makes the hand ready for more, once all of it is tried.
func (h *hand) clear() {
	h.g.clear()
	h.left, h.bytes, h.top = h.left[:0], 0, 0
}
