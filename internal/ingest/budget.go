package ingest

import (
	"context"
	"sync"
)

// budget bounds the bytes of payloads and headers that a worker holds from batch to acknowledgement. Batches whose results are
// on their way to the server are bounded in number too, but small ones are many and cost little, and large
// ones few: so bytes are what is counted. It is overdrawn by what is filling when it runs out, a batch for
// each batcher at most.
type budget struct {
	mu   sync.Mutex
	left int64
	more chan struct{} // closed when some is given back to an empty budget; nil while nobody waits
}

// await returns once there is some left, or the error of ctx, or nil when over is closed.
func (b *budget) await(ctx context.Context, over <-chan struct{}) error {
	for {
		b.mu.Lock()
		if b.left > 0 {
			b.mu.Unlock()
			return nil
		}
		if b.more == nil {
			b.more = make(chan struct{})
		}
		more := b.more
		b.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return nil
		}
	}
}

// take takes n bytes, and give gives them back.
func (b *budget) take(n int) {
	b.mu.Lock()
	b.left -= int64(n)
	b.mu.Unlock()
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += int64(n)
	if b.left > 0 && b.more != nil {
		close(b.more)
		b.more = nil
	}
}
