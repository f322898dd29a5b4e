package ingest

import (
	"sync"
	"time"
)

// startKeepAlive tells the server about deliveries that are in flight for long, before ackWait passes. It returns what stops it.
func (p *pool) startKeepAlive(ackWait time.Duration) (stop func()) {
	every := ackWait / 3
	ticker := time.NewTicker(max(every/2, 10*time.Millisecond))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case now := <-ticker.C:
				for _, g := range p.groups {
					g.keepAlive(now, every)
				}
			case <-done:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		wg.Wait()
	}
}
