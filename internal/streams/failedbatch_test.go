package streams_test

import (
	"errors"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// failing is an operator of the host device. It has no result for any payload of a batch if one of them begins with
// '!'. Its kernel refuses batches of more than maxRows payloads.
type failing struct {
	operator.Operator
	maxRows int
}

func (f failing) Bind([]byte) (device.BoundHostKernel, error) { return f, nil }

func (f failing) Needs(s device.Shape) device.Needs {
	if s.Rows > f.maxRows {
		return device.Needs{}
	}
	return device.Needs{Result: s.Rows * f.Stride(), InPlace: true}
}

func (f failing) Run(rows []byte, offsets []uint32, _, result []byte, _ device.Parallel) error {
	clear(result)
	for i, end := range offsets[1:] {
		if row := rows[offsets[i]:end]; len(row) > 0 && row[0] == '!' {
			result[0] = 1
		}
	}
	return nil
}

func (f failing) Refusal([]byte, int, int) string       { return "" }
func (f failing) Overlong([]byte, []uint32, int) string { return "" }
func (f failing) Fault(string) string                   { return "" }
func (f failing) FailedBatch(results []byte, _ int) string {
	if results[0] == 0 {
		return ""
	}
	return "a pass failed"
}

func openFailing(t *testing.T, maxRows int) (device.Device, []operator.Operator) {
	t.Helper()
	op := failing{operators(t, "crc32c")[0], maxRows}
	d, err := host.Open(host.Options{Cores: 1, Kernels: []device.HostKernel{op}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClean(t, d) })
	return d, []operator.Operator{op}
}

// TestABatchThatAnOperatorFailedOnHasAnError checks that the error names the operator, and that the device continues to work.
func TestABatchThatAnOperatorFailedOnHasAnError(t *testing.T) {
	d, ops := openFailing(t, 100)
	p := newPipeline(t, d, streams.Options{Operators: ops, BatchPayloads: 100})
	for i, rows := range [][][]byte{{[]byte("abc"), []byte("!")}, {[]byte("abc"), []byte("d")}} {
		submit(t, p, rows)
		b := <-p.Completed()
		var failed *operator.BatchError
		if bad := i == 0; errors.As(b.Err(), &failed) != bad || bad && (device.FailedOperator(b.Err()) != "crc32c" || b.Err().Error() != "operator crc32c: a pass failed") {
			t.Errorf("batch %d: error %v", i, b.Err())
		}
		b.Release()
	}
	if err := p.Probe(t.Context()); err != nil || p.Err() != nil {
		t.Errorf("probe: %v; the pipeline ended with %v", err, p.Err())
	}
}

// TestAnOperatorThatTakesNoLargestBatch checks that New refuses an operator that can't compute the largest batch. Otherwise every full
// batch would fail.
func TestAnOperatorThatTakesNoLargestBatch(t *testing.T) {
	d, ops := openFailing(t, 100)
	_, err := streams.New(d, streams.Options{Lanes: 1, Operators: ops, BatchBytes: 1000, BatchPayloads: 101, ScratchLimit: 1})
	if want := "operator crc32c: plan memory: invalid argument: it can't compute a batch of 101 payloads and 1000 bytes: lower MILLRACE_BATCH_PAYLOADS"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	}
}
