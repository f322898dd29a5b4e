package lease

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
)

// BenchmarkReadStateLog reads the log of a state from a file stream, without replaying it: with stateLog, an ordered consumer, and batches of
// direct requests. A document has about 170 bytes in a log.
func BenchmarkReadStateLog(b *testing.B) {
	const markers, documentBytes = "commits.RESULTS.IN.millrace.0", 170
	for _, size := range []int{1400, 64 << 10, 1000 << 10} {
		r := natstest.New(b)
		r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"commits.>"}, AllowDirect: true})
		n, entry := min(20_000, 256<<20/size), make([]byte, size)
		r.Publish(0, n, func(i int) *nats.Msg { return statelog.Message(markers, false, uint64(i+1), &store.State{}, entry) })
		subject := statelog.Subject(markers)
		ways := []struct {
			name string
			read func(ctx context.Context) (count int, err error)
		}{
			{"log", func(ctx context.Context) (count int, err error) {
				l := NewStateLog(r.JS, r.NC, "RESULTS", markers, func(int) {}, slog.New(slog.DiscardHandler))
				for _, err := range l.Read(ctx, 0, math.MaxUint64) {
					if err != nil {
						return count, err
					}
					count++
				}
				return count, nil
			}},
			{"ordered", func(ctx context.Context) (count int, err error) {
				c, err := r.JS.OrderedConsumer(ctx, "RESULTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
				if err != nil {
					return 0, err
				}
				messages, err := c.Messages(jetstream.PullMaxBytes(8 << 20))
				if err != nil {
					return 0, err
				}
				defer messages.Stop()
				for ; count < n; count++ {
					if _, err := messages.Next(jetstream.NextContext(ctx)); err != nil {
						return count, err
					}
				}
				return count, nil
			}},
			{"direct", func(ctx context.Context) (count int, err error) {
				for next := uint64(1); count < n; {
					batch, err := jetstreamext.GetBatch(ctx, r.JS, "RESULTS", 1000, jetstreamext.GetBatchSubject(subject),
						jetstreamext.GetBatchSeq(next), jetstreamext.GetBatchMaxBytes(8<<20))
					if err != nil {
						return count, err
					}
					for m, err := range batch {
						if err != nil {
							return count, err
						}
						next, count = m.Sequence+1, count+1
					}
				}
				return count, nil
			}},
		}
		for _, way := range ways {
			b.Run(fmt.Sprintf("%s/%d", way.name, size), func(b *testing.B) {
				b.SetBytes(int64(n * size))
				for b.Loop() {
					if count, err := way.read(b.Context()); err != nil || count != n {
						b.Fatalf("%d of %d entries are read: %v", count, n, err)
					}
				}
				b.ReportMetric(float64(n*size/documentBytes)*float64(b.N)/b.Elapsed().Seconds(), "documents/s")
			})
		}
	}
}
