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

// ExamplePacker packs three deliveries into a batch, lets the CPU compute it, and settles them.
func ExamplePacker() {
	if err := packThree(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// a batch of 3 payloads
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
	feed := inflight.NewFeed()
	packer := pool.NewPacker(pipe, feed, time.Millisecond)
	queue := pool.NewQueue(owner{}, inflight.QueueMax, inflight.NewWindow(1))
	feed.Attach(queue)
	for i := range 3 {
		queue.Put(ctx, inflight.Delivery{Msg: text(fmt.Sprintf("payload %d", i)), Sequence: uint64(i + 1), Received: time.Now()})
	}

	// Fill a batch from the queue and submit it.
	packed, err := packer.Next(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Println("a batch of", packed.Batch.Rows(), "payloads")
	if err := pool.Submit(packed); err != nil {
		return err
	}
	batch := packed.Groups[0]

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

// owner implements inflight.Owner.
type owner struct{ inflight.Owner }

func (owner) Packed(*inflight.Batch) {}

type message struct {
	inflight.Message
	data []byte
}

func text(s string) inflight.Message { return message{data: []byte(s)} }

func (m message) Data() []byte { return m.data }
