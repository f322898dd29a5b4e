package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/device/host"
	"millrace/internal/ingest/inflight"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// ExampleBatcher packs three deliveries into a batch, lets the CPU compute it, and settles them.
func ExampleBatcher() {
	if err := packThree(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// a batch of 3 payloads, closed by count
	// 3 to settle
	// 0 batches in flight
}

func packThree() (err error) {
	ctx := context.Background()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		return err
	}
	dev, err := host.Open(host.Options{Kernels: operator.HostKernels()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	pipe, err := streams.New(dev, streams.Options{
		Lanes: 1, BatchBytes: 64 << 10, BatchPayloads: 3, ScratchLimit: 1 << 20, Operators: ops,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pipe.Close()) }()

	pool, err := inflight.NewPool([]*streams.Pipeline{pipe}, memory.Worker{Messages: memory.Messages{Format: operator.JSON, Operators: ops}})
	if err != nil {
		return err
	}
	queue := inflight.NewQueue(inflight.QueueMax)
	for i := range 3 {
		queue.Put(ctx, inflight.Delivery{Msg: text(fmt.Sprintf("payload %d", i)), Sequence: uint64(i + 1), Received: time.Now()})
	}

	// Fill a batch from the queue and submit it.
	window := inflight.NewWindow(1)
	batcher := pool.NewBatcher(pipe, queue, time.Millisecond, window, nil)
	batch, err := batcher.Reserve(ctx)
	if err != nil {
		return err
	}
	filled, why, err := batcher.Next(batch, 0)
	if err != nil {
		return err
	}
	fmt.Printf("a batch of %d payloads, closed by %v\n", filled.Rows(), why)
	if err := pool.Submit(filled, batch, window, why); err != nil {
		return err
	}

	// The worker would now publish the results. It then settles each delivery and recycles the batch.
	(<-pipe.Completed()).Release()
	fmt.Println(len(batch.Unsettled()), "to settle")
	for i := range batch.Items {
		batch.Settle(i)
	}
	pool.Recycle(batch)
	fmt.Println(pool.InFlight(), "batches in flight")
	return nil
}

type message struct {
	inflight.Message
	data []byte
}

func text(s string) inflight.Message { return message{data: []byte(s)} }

func (m message) Data() []byte { return m.data }
