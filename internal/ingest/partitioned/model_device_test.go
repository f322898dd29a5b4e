package partitioned

import (
	"slices"
	"sync"
	"testing"

	"millrace/internal/device/host"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// modelDevice computes the batches of the lease model. Its pipeline is outside the testing/synctest bubble, because
// its goroutines outlive a run. A worker of the model waits for the device within one step of the scheduler.
type modelDevice struct {
	pipe *streams.Pipeline

	mu      sync.Mutex // held while a batch is packed and computed
	batches chan *streams.Batch
	results chan []byte
}

// modelLab is the state that all runs of a test share.
type modelLab struct {
	operators []operator.Operator
	devices   []*modelDevice // one per batch size
}

func newModelLab(t *testing.T) *modelLab {
	t.Helper()
	operators, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	lab := &modelLab{operators: operators}
	for _, rows := range []int{3, modelBatch} {
		d, err := host.Open(host.Options{Cores: 1, Kernels: operator.HostKernels()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		pipe, err := streams.New(d, streams.Options{
			Operators: operators, Lanes: 8, BatchBytes: modelBatchBytes, BatchPayloads: rows, ScratchLimit: 64 << 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pipe.Close() })
		m := &modelDevice{pipe: pipe, batches: make(chan *streams.Batch), results: make(chan []byte)}
		t.Cleanup(func() { close(m.batches) })
		go m.run()
		lab.devices = append(lab.devices, m)
	}
	return lab
}

const (
	modelBatch      = 8       // maximum number of rows per batch
	modelBatchBytes = 4 << 10 // maximum number of bytes per batch
)

// run computes one batch after another. It sends nil for a batch that the device refused.
func (m *modelDevice) run() {
	for b := range m.batches {
		var results []byte
		if b.Submit(streams.ClosedByCount) == nil {
			b = <-m.pipe.Completed()
			if b.Err() == nil {
				results = slices.Clone(b.Results(0))
			}
		}
		b.Release()
		m.results <- results
	}
}

// compute computes a batch and releases it. The caller holds m.mu.
func (m *modelDevice) compute(b *streams.Batch) (results []byte) {
	m.batches <- b
	return <-m.results
}
