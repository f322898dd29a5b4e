package store

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// BenchmarkStores measures both publishers on one server with file storage. They alternate within each iteration, so other load on
// the machine affects both publishers. Four goroutines publish groups of 1024 messages. Server and client share the machine.
//
//	go test ./internal/ingest/store -run xxx -bench Stores -benchtime 5x
func BenchmarkStores(b *testing.B) {
	for _, size := range []struct {
		name          string
		bytes, groups int
	}{{"256B", 256, 64}, {"64KiB", 64 << 10, 4}} {
		b.Run(size.name, func(b *testing.B) { benchStores(b, size.bytes, size.groups) })
	}
}

func benchStores(b *testing.B, size, groups int) {
	r := newRig(b, func(c *jetstream.StreamConfig) {
		// The stream has space for the messages of one iteration, and soon forgets ids.
		c.MaxBytes, c.Duplicates = 2<<30, 100*time.Millisecond
	})
	windowed, singles := r.windowed(Timeout, r.Connect(r.URL)), r.windowed(Timeout, r.Connect(r.URL))
	stores := []struct {
		name  string
		store Publisher
		took  time.Duration
	}{{name: "windowed", store: windowed}, {name: "batched", store: r.batching(singles)}}
	const group = 1024
	first := 0
	for b.Loop() {
		for i := range stores {
			b.StopTimer()
			msgs := messages(first, groups*group, size)
			first += len(msgs)
			b.StartTimer()
			start := time.Now()
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					for g := w; g < groups; g += 4 {
						for n, a := range stores[i].store.Publish(r.Ctx(), msgs[g*group:(g+1)*group], nil) {
							if a.Err != nil {
								b.Error(fmt.Errorf("message %d of group %d: %w", n, g, a.Err))
							}
						}
					}
				})
			}
			wg.Wait()
			stores[i].took += time.Since(start)
		}
	}
	for len(r.troubles) > 0 {
		b.Error(<-r.troubles)
	}
	for _, s := range stores {
		b.ReportMetric(float64(b.N*groups*group)/s.took.Seconds(), s.name+"/s")
	}
}
