package shared

import (
	"sync"

	"millrace/internal/ingest/inflight"
)

// unread collects received deliveries that will not be packed into a batch. They are given back after the end of the
// pull, because the server would otherwise deliver them to this worker again.
type unread struct {
	mu   sync.Mutex
	list []inflight.Delivery
}

func (u *unread) add(d inflight.Delivery) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = append(u.list, d)
}

func (u *unread) takeAll() []inflight.Delivery {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.list
	u.list = nil
	return list
}
