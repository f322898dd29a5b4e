package ingest

import (
	"fmt"
	"slices"
	"testing"

	"millrace/internal/device"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// spoilt is an operator that has no results for a batch with a record of unfit bytes. Its results are the records,
// followed by a status byte for each record.
type spoilt struct{ operator.Operator }

func (s spoilt) Refusal([]byte, int, int) string { return "" }

func (s spoilt) FailedBatch(results []byte, rows int) string {
	if results[rows*s.Stride()] == 0 {
		return ""
	}
	return "a pass failed"
}

func (s spoilt) Overlong([]byte, []uint32, int) string { return "" }

func (s spoilt) Fault(string) string { return "" }

type spoiltKernel struct{ device.HostKernel }

func (k spoiltKernel) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := k.HostKernel.Bind(params)
	return spoiltBound{refusingBound{b, noOther}}, err
}

type spoiltBound struct{ refusingBound }

func (b spoiltBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	n := len(offsets) - 1
	statuses := result[len(result)-n:]
	bad := byte(0)
	for i := range n {
		if offsets[i+1]-offsets[i] == unfit {
			bad = 1
		}
	}
	for i := range statuses {
		statuses[i] = bad
	}
	return b.BoundHostKernel.Run(rows, offsets, scratch, result[:len(result)-n], parallel)
}

// spoil makes the rig's first operator, crc32c, fail on batches with a record of unfit bytes. It returns a device
// with that operator.
func (r *rig) spoil(t *testing.T) device.Device {
	r.opts.Operators = slices.Clone(r.opts.Operators)
	r.opts.Operators[0] = spoilt{r.opts.Operators[0]}
	kernels := operator.HostKernels()
	kernels[0] = spoiltKernel{kernels[0]}
	return openHost(t, kernels)
}

// TestABatchWithoutResultsIsSearchedForItsCause makes an operator fail for a whole batch. Only the records that cause
// the failure become dead letters.
func TestABatchWithoutResultsIsSearchedForItsCause(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 16, 1024} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				r.opts.Split.Framing = frame.None
				d := r.spoil(t)
				r.provision()
				const n = 60
				bad := []int{17, 18, 40}
				payload := unfitAt(bad...)
				r.publish(n, payload)
				r.process(d, streams.Options{BatchPayloads: batch})
				found, dead := r.stored("results.>"), r.deadLetters()
				for i := range n {
					seq := uint64(i + 1)
					if slices.Contains(bad, i) {
						if len(found[seq]) != 0 || len(dead[seq]) != 1 {
							t.Fatalf("payload %d, on which a pass fails, has %d results and %d dead letters", i, len(found[seq]), len(dead[seq]))
						}
						wantHeaders(t, dead[seq][0].Headers(), map[string]string{
							results.HeaderReason: string(results.OperatorError), results.HeaderError: "operator crc32c: a pass failed",
							results.HeaderOperator: "crc32c",
						})
						continue
					}
					if len(found[seq]) != 1 || len(dead[seq]) != 0 {
						t.Fatalf("payload %d has %d results and %d dead letters", i, len(found[seq]), len(dead[seq]))
					}
					if err := r.opts.Format.Check(r.opts.Operators, payload(i), found[seq][0].Data()); err != nil {
						t.Errorf("payload %d: %v", i, err)
					}
				}
				if got := r.tally.count(inflight.DeadLettered); got != len(bad) {
					t.Errorf("%d dead letters are reported, want %d", got, len(bad))
				}
				if got, want := r.tally.operatorFaults(), slices.Repeat([]string{"crc32c out_of_bounds"}, len(bad)); !slices.Equal(got, want) {
					t.Errorf("faults %v, want %v", got, want)
				}
			})
		})
	}
}

// TestARecordThatLeavesABatchWithoutResultsFailsAlone shows that the other records of its frame have results.
func TestARecordThatLeavesABatchWithoutResultsFailsAlone(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{7, 1024} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				r.opts.Format = operator.JSON // the format that contains the reasons
				d := r.spoil(t)
				inputs := []framed{manyLines(1, 20), manyLines(2, 30, 13, 29), manyLines(4, 5)}
				r.provision()
				r.publishFrames(inputs)
				r.process(d, streams.Options{BatchPayloads: batch})
				r.wantFrames(inputs)
			})
		})
	}
}
