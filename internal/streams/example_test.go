package streams_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"millrace/internal/device/host"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// ExamplePipeline computes the checksums of two payloads on the CPU.
func ExamplePipeline() {
	if err := checksums("123456789", ""); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 9 bytes: e3069283
	// 0 bytes: 00000000
}

func checksums(payloads ...string) (err error) {
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
		Lanes: 1, BatchBytes: 64 << 10, BatchPayloads: 128, ScratchLimit: 1 << 20, Operators: ops,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pipe.Close()) }()

	// Fill a batch and submit it. Completed returns the batch with its results.
	batch, err := pipe.Acquire(context.Background())
	if err != nil {
		return err
	}
	for _, payload := range payloads {
		batch.Append([]byte(payload))
	}
	if err := batch.Submit(streams.ClosedByCount); err != nil {
		batch.Release()
		return err
	}

	done := <-pipe.Completed()
	defer done.Release() // gives the buffers back; the results are invalid from then on
	if err := done.Err(); err != nil {
		return err
	}
	records, stride := done.Results(0), ops[0].Stride()
	for i, payload := range payloads {
		fmt.Printf("%d bytes: %08x\n", len(payload), binary.LittleEndian.Uint32(records[i*stride:]))
	}
	return nil
}
