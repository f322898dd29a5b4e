package inflight

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/capacity"
	"millrace/internal/ingest/pull"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestCapacityIsWhatAWorkerHolds adds up the capacities of a worker's parts, for both schedules that a worker uses.
func TestCapacityIsWhatAWorkerHolds(t *testing.T) {
	t.Parallel()
	for _, schedule := range []streams.Schedule{streams.Overlapped, streams.Triple} {
		for _, w := range []capacity.Worker{
			{Devices: 1, Lanes: 1, BatchPayloads: 1, Consumers: 1}, {Devices: 2, Lanes: 3, BatchPayloads: 100, Consumers: 4},
		} {
			var pipes []*streams.Pipeline
			for range w.Devices {
				pipes = append(pipes, testPipeline(t, hostDevice(t), streams.Options{Schedule: schedule, Lanes: w.Lanes, BatchPayloads: w.BatchPayloads}))
			}
			p, err := NewPool(pipes, Options{Costs: NewCosts(operator.JSON, crc32c(t))})
			if err != nil {
				t.Fatal(err)
			}
			requests := capacity.Requests * pull.NewSize(jetstream.ConsumerConfig{}).Messages
			if got := p.Size()*w.BatchPayloads + w.Consumers*(cap(NewQueue(QueueMax).ch)+requests); got != w.InFlight() {
				t.Errorf("%s, %+v: its parts hold %d payloads, and InFlight is %d", schedule.Name, w, got, w.InFlight())
			}
		}
	}
}
