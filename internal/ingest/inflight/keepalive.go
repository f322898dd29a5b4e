package inflight

import (
	"sync"
	"time"
)

// StartKeepAlive starts a goroutine that sends InProgress for deliveries that are in flight for longer than a third of
// ackWait. stop ends the goroutine and waits for it.
func (p *Pool) StartKeepAlive(ackWait time.Duration) (stop func()) {
	every := ackWait / 3
	ticker := time.NewTicker(max(every/2, 10*time.Millisecond))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case now := <-ticker.C:
				for _, g := range p.allBatches() {
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
